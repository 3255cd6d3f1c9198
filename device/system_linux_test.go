package device

import (
	"math"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func machine(files map[string]string) system {
	root := fstest.MapFS{}
	for name, text := range files {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return system{root}
}

func TestCores(t *testing.T) {
	topology := func(core, pack string, cpus ...string) map[string]string {
		files := map[string]string{}
		for _, c := range cpus {
			dir := "sys/devices/system/cpu/cpu" + c + "/topology/"
			files[dir+"core_id"], files[dir+"physical_package_id"] = core+"\n", pack+"\n"
		}
		return files
	}
	files := map[string]string{}
	for _, part := range []map[string]string{topology("0", "0", "0", "4"), topology("1", "0", "1", "5"), topology("0", "1", "2", "6"), topology("1", "1", "3", "7")} {
		for k, v := range part {
			files[k] = v
		}
	}
	s := machine(files)
	require.Equal(t, [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}}, s.cores([]int{0, 1, 2, 3, 4, 5, 6, 7}))
	require.Equal(t, [][]int{{0, 4}}, s.cores([]int{0, 4}))
	require.Equal(t, [][]int{{0, 4}, {2}, {7}}, s.cores([]int{0, 4, 2, 7}))
	require.Equal(t, [][]int{{0}, {4}, {2}}, machine(nil).cores([]int{0, 4, 2}), "without topology each is a core")
	require.Equal(t, []Node{{0, [][]int{{0, 4}, {2}}}}, s.nodes([]int{0, 4, 2}), "without nodes there is one")
	for _, cpu := range []string{"0/cpu0", "0/cpu4", "0/cpu1", "0/cpu5", "2/cpu2", "2/cpu6", "10/cpu3", "10/cpu7", "s/cpu3", "3/cpulist"} {
		files["sys/devices/system/node/node"+cpu] = ""
	}
	require.Equal(t, []Node{{0, [][]int{{0, 4}, {1, 5}}}, {2, [][]int{{2, 6}}}, {10, [][]int{{3, 7}}}}, machine(files).nodes([]int{0, 1, 2, 3, 4, 5, 6, 7}))
	require.Equal(t, []Node{{0, [][]int{{5}}}, {10, [][]int{{3}}}}, machine(files).nodes([]int{3, 5}), "of this process")
	require.Positive(t, DefaultThreads())
}

func TestQuota(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  int
	}{
		"none": {map[string]string{"proc/self/cgroup": "0::/\n"}, math.MaxInt},
		"v2": {map[string]string{"proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "sys/fs/cgroup/a/cpu.max": "150000 100000\n"}, 2},
		"v1": {map[string]string{"proc/self/cgroup": "4:cpu,cpuacct:/a\n2:memory:/a\n",
			"sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 3},
		"container": {map[string]string{"proc/self/cgroup": "0::/host/path\n", "sys/fs/cgroup/cpu.max": "50000 100000"}, 1},
		"garbage":   {map[string]string{"proc/self/cgroup": "0\nx:y\n0::../..\n", "sys/fs/cgroup/cpu.max": "1 2 3"}, math.MaxInt},
	} {
		require.Equal(t, c.want, machine(c.files).quota(), name)
	}
}

func TestAvailableMemory(t *testing.T) {
	const meminfo = "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"machine": {map[string]string{"proc/meminfo": meminfo}, 8000 << 10},
		"v2": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n",
			"sys/fs/cgroup/a/memory.max": "2000000\n", "sys/fs/cgroup/a/memory.current": "1500000\n",
			"sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 400000\n"}, 900000},
		"v2 unlimited": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n",
			"sys/fs/cgroup/a/memory.max": "max\n", "sys/fs/cgroup/a/memory.current": "1500000\n"}, 8000 << 10},
		"v1 of a parent": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/a/b\n",
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/memory/a/b/memory.usage_in_bytes": "10",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1000", "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "1600"}, 0},
		"unknown": {nil, math.MaxInt64},
	} {
		require.Equal(t, c.want, machine(c.files).memory(), name)
	}
	require.Greater(t, availableMemory(), int64(1<<20))
	require.Equal(t, int64(12<<10), machine(map[string]string{"proc/self/status": "VmRSS:\t 100 kB\nRssAnon:\t      12 kB\n"}).touched())
	require.Greater(t, touchedMemory(), int64(1<<20))
}
