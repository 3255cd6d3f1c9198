// Package fakemetal is Apple's Metal for tests on Linux: the classes that the bridge
// of package metal uses, with pipelines that run the emulated kernels. It builds
// under the tag fakemetal, with gobjc.
//
// It implements the calls as Metal's documentation describes them and is strict where Metal's
// behaviour is undefined. It rejects what Metal's validation layer rejects (misuse ends the
// process, or is collected). Dispatches between two barriers, and command buffers that no fence or
// event orders, run in any order, so that a missing one is detected. New buffers can hold NaN, and
// a GPU's faults occur on request:
//
//	fakemetal.Configure(fakemetal.Options{Emulator: emulated.Provider(), Shuffle: true, Seed: 7})
//	fakemetal.Fail(fakemetal.Timeout, 12) // the 13th dispatch from now
//
// It does not simulate a GPU's speed: times are the CPU's, or made up on request.
package fakemetal
