package kernels

// replicateFamilies copy KV heads for the query heads that share them.
var replicateFamilies = []family{
	{name: "repeat_kv", check: checkRepeat, file: "replicate.metal", summary: "every KV head copied for each of its query heads", instances: ropeTypes,
		args: "0 x read $0; 1 out write $0", params: RepeatParams{}, paramsIndex: 2, maxThreads: RepeatThreads},
	{name: "repeat_kv_pair", check: checkRepeat, file: "replicate.metal", summary: "repeat_kv of K and V in one launch", instances: ropeTypes,
		args: "0 k read $0; 1 v read $0; 2 k_out write $0; 3 v_out write $0", params: RepeatParams{}, paramsIndex: 4, maxThreads: RepeatThreads},
}
