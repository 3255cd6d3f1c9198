package check

import (
	"bufio"
	"bytes"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/config"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/config/loader"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/datalayer"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/plugin"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/datalayer/extractor/metrics"
	source "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/datalayer/source/metrics"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/flowcontrol/fairness"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/flowcontrol/ordering"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/flowcontrol/saturationdetector/utilization"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/flowcontrol/usagelimits"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/requestcontrol/dataproducer/approximateprefix"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/requesthandling/parsers/openai"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/picker"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/profile"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/scorer/kvcacheutilization"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/scorer/prefix"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/scorer/queuedepth"
	"sigs.k8s.io/yaml"
)

func init() { // as the picker's own program does
	plugin.Register(prefix.PrefixCacheScorerPluginType, prefix.PrefixCachePluginFactory)
	plugin.Register(picker.MaxScorePickerType, picker.MaxScorePickerFactory)
	plugin.Register(profile.SingleProfileHandlerType, profile.SingleProfileHandlerFactory)
	plugin.Register(kvcacheutilization.KvCacheUtilizationScorerType, kvcacheutilization.KvCacheUtilizationScorerFactory)
	plugin.Register(queuedepth.QueueScorerType, queuedepth.QueueScorerFactory)
	plugin.Register(approximateprefix.ApproxPrefixCachePluginType, approximateprefix.ApproxPrefixCacheFactory)
	plugin.Register(source.MetricsDataSourceType, source.MetricsDataSourceFactory)
	plugin.Register(metrics.MetricsExtractorType, metrics.CoreMetricsExtractorFactory)
	plugin.Register(openai.OpenAIParserType, openai.OpenAIParserPluginFactory)
	plugin.Register(ordering.FCFSOrderingPolicyType, ordering.FCFSOrderingPolicyFactory)
	plugin.Register(fairness.GlobalStrictFairnessPolicyType, fairness.GlobalStrictFairnessPolicyFactory)
	plugin.Register(usagelimits.StaticUsageLimitPolicyType, usagelimits.StaticPolicyFactory)
	plugin.Register(utilization.UtilizationDetectorType, utilization.UtilizationDetectorFactory)
}

const root = "../.."

var model, _ = filepath.Abs(filepath.Join(root, "testdata/models/tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf"))

// tool builds smelt as make build does.
var tool = func() func(t *testing.T) string {
	var once sync.Once
	var path string
	var out []byte
	var err error
	return func(t *testing.T) string {
		once.Do(func() {
			dir, _ := filepath.Abs(filepath.Join(root, "bin"))
			path = filepath.Join(dir, "smelt")
			build := exec.Command("make", "-C", root, "build")
			build.Env = append(os.Environ(), "GOFLAGS=-trimpath", "GOWORK=", "MAKEFLAGS=")
			out, err = build.CombinedOutput()
		})
		require.NoError(t, err, "%s", out)
		return path
	}
}()

// start runs a server until the test ends, and returns its address.
func start(t *testing.T, cmd *exec.Cmd) string {
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err, "%s", said.String())
	return strings.TrimSpace(line)
}

// configuration loads the picker's, as its manifest has it with a text replaced.
func configuration(t *testing.T, old, by string) (*config.Config, plugin.Handle, error) {
	text, err := os.ReadFile("../kubernetes/picker.yaml")
	require.NoError(t, err)
	var m core.ConfigMap
	require.NoError(t, yaml.UnmarshalStrict([]byte(strings.Split(string(text), "\n---\n")[0]), &m))
	require.Contains(t, m.Data["picker.yaml"], old)
	raw, _, err := loader.LoadRawConfig([]byte(strings.Replace(m.Data["picker.yaml"], old, by, 1)), logr.Discard())
	if err != nil {
		return nil, nil, err
	}
	handle := plugin.NewEppHandle(t.Context(), nil)
	c, err := loader.InstantiateAndConfigure(raw, handle, logr.Discard())
	return c, handle, err
}

// TestPicker: the endpoint picker takes its configuration, and finds by it in a server's metrics
// what it decides by.
func TestPicker(t *testing.T) {
	c, handle, err := configuration(t, "", "")
	require.NoError(t, err)
	require.Len(t, c.DataConfig.Sources, 1)
	for _, wrong := range [][2]string{
		{"pluginRef: queue-scorer", "pluginRef: queues-scorer"}, {"type: prefix-cache-scorer", "type: prefix-scorer"},
		{"schedulingProfiles:", "schedulingProfile:"}, {"weight: 3", "weigth: 3"}, {"defaultEngine: smelt", "defaultEngine: smelter"},
	} {
		_, _, err := configuration(t, wrong[0], wrong[1])
		require.Error(t, err, wrong[1])
	}

	address := start(t, exec.Command(tool(t), "serve", model, "--addr", "127.0.0.1:0", "--device", "cpu", "--parallel", "2", "--ctx", "8192", "--cache-bytes", "16000000"))
	for range 5 {
		go func() {
			answer, err := http.Post(address+"/v1/completions", "application/json", strings.NewReader(`{"prompt": "Once", "max_tokens": 8000, "ignore_eos": true}`))
			if err == nil { // the test may have ended
				answer.Body.Close()
			}
		}()
	}
	u, err := url.Parse(address)
	require.NoError(t, err)
	var extractor datalayer.Extractor
	var polled datalayer.PollingDataSource
	for _, p := range handle.GetAllPlugins() {
		switch p := p.(type) {
		case datalayer.Extractor:
			extractor = p
		case datalayer.PollingDataSource:
			polled = p
		}
	}
	endpoint := datalayer.NewEndpoint(&datalayer.EndpointMetadata{MetricsHost: u.Host}, datalayer.NewMetrics())
	poll := func() *datalayer.Metrics {
		data, err := polled.Poll(t.Context(), endpoint)
		require.NoError(t, err)
		require.NoError(t, extractor.Extract(t.Context(), data, endpoint))
		return endpoint.GetMetrics()
	}
	require.Eventually(t, func() bool { m := poll(); return m.RunningRequestsSize == 2 && m.WaitingQueueSize == 3 }, 30*time.Second, 10*time.Millisecond)
	m := poll()
	require.Equal(t, 64, m.CacheBlockSize)
	require.Greater(t, m.CacheNumBlocks, 10)
	require.Greater(t, m.KVCacheUsagePercent, 0.0)
	require.Less(t, m.KVCacheUsagePercent, 1.0)
}
