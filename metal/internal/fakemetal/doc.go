// Package fakemetal is Apple's Metal for tests on Linux: the classes that the bridge
// of package metal talks to, with pipelines that run the emulated kernels. It builds
// under the tag fakemetal, with gobjc.
//
// It obeys the calls as Metal's documentation describes them and is strict where
// Metal is merely undefined. It refuses what Metal's validation layer refuses
// (misuse ends the process, or is collected); dispatches between two barriers, and
// command buffers that no fence or event orders, run in any order, so that a missing
// one shows; new buffers can hold NaN; and it dies of what GPUs die of, on request:
//
//	fakemetal.Configure(fakemetal.Options{Emulator: emulated.Provider(), Shuffle: true, Seed: 7})
//	fakemetal.Fail(fakemetal.Timeout, 12) // the 13th dispatch from now
//
// It knows nothing of time: what it says of speed is the CPU's, or made up on request.
package fakemetal
