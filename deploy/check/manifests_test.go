package check

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/labels"
	pool "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	objective "sigs.k8s.io/gateway-api-inference-extension/apix/v1alpha2"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/json" // which tells letters of fields apart by their case, as servers do
	"sigs.k8s.io/yaml"
)

// kinds are the types of all objects that the manifests may have.
var kinds = map[string]any{
	"apps/v1 Deployment":                                        apps.Deployment{},
	"v1 Service":                                                core.Service{},
	"v1 ConfigMap":                                              core.ConfigMap{},
	"v1 ServiceAccount":                                         core.ServiceAccount{},
	"policy/v1 PodDisruptionBudget":                             policy.PodDisruptionBudget{},
	"autoscaling/v2 HorizontalPodAutoscaler":                    autoscaling.HorizontalPodAutoscaler{},
	"rbac.authorization.k8s.io/v1 Role":                         rbac.Role{},
	"rbac.authorization.k8s.io/v1 RoleBinding":                  rbac.RoleBinding{},
	"gateway.networking.k8s.io/v1 Gateway":                      gateway.Gateway{},
	"gateway.networking.k8s.io/v1 HTTPRoute":                    gateway.HTTPRoute{},
	"inference.networking.k8s.io/v1 InferencePool":              pool.InferencePool{},
	"inference.networking.x-k8s.io/v1alpha2 InferenceObjective": objective.InferenceObjective{},
}

// schemas are where modules keep those of kinds that Kubernetes itself does not know.
var schemas = map[string][]string{
	"sigs.k8s.io/gateway-api":                     {"config/crd/standard/gateway.networking.k8s.io_*s.yaml"},
	"sigs.k8s.io/gateway-api-inference-extension": {"config/crd/bases/*.yaml"},
}

// validators are by version and kind.
func validators(t *testing.T) map[string]validation.SchemaValidator {
	all := map[string]validation.SchemaValidator{}
	for module, patterns := range schemas {
		dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		require.NoError(t, err)
		for _, pattern := range patterns {
			files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), pattern))
			require.NoError(t, err)
			require.NotEmpty(t, files)
			for _, file := range files {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				var crd extensions.CustomResourceDefinition
				require.NoError(t, yaml.Unmarshal(text, &crd), file)
				for _, v := range crd.Spec.Versions {
					var schema apiextensions.JSONSchemaProps
					require.NoError(t, extensions.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, &schema, nil))
					validator, _, err := validation.NewSchemaValidator(&schema)
					require.NoError(t, err)
					all[crd.Spec.Group+"/"+v.Name+" "+crd.Spec.Names.Kind] = validator
				}
			}
		}
	}
	return all
}

// read decodes a document of a manifest into the type of its kind.
func read(document []byte, validators map[string]validation.SchemaValidator) (any, error) {
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal(document, &head); err != nil {
		return nil, err
	}
	kind := head.APIVersion + " " + head.Kind
	of, ok := kinds[kind]
	if !ok {
		return nil, errUnknown(kind)
	}
	object := reflect.New(reflect.TypeOf(of)).Interface()
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, err
	}
	if wrong, err := json.UnmarshalStrict(text, object); err != nil || len(wrong) > 0 {
		return nil, errors.Join(append(wrong, err)...)
	}
	if v := validators[kind]; v != nil {
		var raw any
		if err := yaml.Unmarshal(document, &raw); err != nil {
			return nil, err
		}
		if list := validation.ValidateCustomResource(nil, raw, v); len(list) > 0 {
			return nil, list.ToAggregate()
		}
	}
	return object, nil
}

type errUnknown string

func (e errUnknown) Error() string { return string(e) + " is no kind that is known here" }

func documents(t *testing.T) (list [][]byte) {
	files, err := filepath.Glob("../kubernetes/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, d := range bytes.Split(text, []byte("\n---\n")) {
			list = append(list, d)
		}
	}
	return list
}

func only[T any](t *testing.T, objects []any, name string, named func(*T) string) *T {
	var found *T
	for _, o := range objects {
		if x, ok := o.(*T); ok && named(x) == name {
			require.Nil(t, found, "two of %s", name)
			found = x
		}
	}
	require.NotNil(t, found, "%T %s", found, name)
	return found
}

// TestManifests: each object is of its type and schema, and what names another finds it.
func TestManifests(t *testing.T) {
	v := validators(t)
	var objects []any
	seen := map[string]bool{}
	for _, d := range documents(t) {
		object, err := read(d, v)
		require.NoError(t, err, "%s", d)
		objects = append(objects, object)
		var head struct{ APIVersion, Kind string }
		require.NoError(t, yaml.Unmarshal(d, &head))
		seen[head.APIVersion+" "+head.Kind] = true
	}
	for kind := range kinds {
		require.True(t, seen[kind], "no manifest has a %s", kind)
		if strings.Contains(kind, "networking") {
			require.NotNil(t, v[kind], kind)
		}
	}

	server := only(t, objects, "smelt", func(d *apps.Deployment) string { return d.Name })
	picker := only(t, objects, "smelt-picker", func(d *apps.Deployment) string { return d.Name })
	pods := labels.Set(server.Spec.Template.Labels)
	container := server.Spec.Template.Spec.Containers[0]

	budget := only(t, objects, "smelt", func(b *policy.PodDisruptionBudget) string { return b.Name })
	require.True(t, labels.SelectorFromSet(budget.Spec.Selector.MatchLabels).Matches(pods))
	service := only(t, objects, "smelt", func(s *core.Service) string { return s.Name })
	require.True(t, labels.SelectorFromSet(service.Spec.Selector).Matches(pods))
	require.Equal(t, container.Ports[0].Name, service.Spec.Ports[0].TargetPort.StrVal)
	scaler := only(t, objects, "smelt", func(h *autoscaling.HorizontalPodAutoscaler) string { return h.Name })
	require.Equal(t, server.Name, scaler.Spec.ScaleTargetRef.Name)
	require.Equal(t, server.Kind, scaler.Spec.ScaleTargetRef.Kind)

	p := only(t, objects, "smelt", func(p *pool.InferencePool) string { return p.Name })
	selector := labels.Set{}
	for k, v := range p.Spec.Selector.MatchLabels {
		selector[string(k)] = string(v)
	}
	require.True(t, labels.SelectorFromSet(selector).Matches(pods))
	require.EqualValues(t, container.Ports[0].ContainerPort, p.Spec.TargetPorts[0].Number)
	found := only(t, objects, string(p.Spec.EndpointPickerRef.Name), func(s *core.Service) string { return s.Name })
	require.EqualValues(t, found.Spec.Ports[0].Port, p.Spec.EndpointPickerRef.Port.Number)
	require.True(t, labels.SelectorFromSet(found.Spec.Selector).Matches(labels.Set(picker.Spec.Template.Labels)))
	require.Contains(t, picker.Spec.Template.Spec.Containers[0].Args, "--pool-name="+p.Name)
	only(t, objects, picker.Spec.Template.Spec.ServiceAccountName, func(s *core.ServiceAccount) string { return s.Name })
	binding := only(t, objects, "smelt-picker", func(b *rbac.RoleBinding) string { return b.Name })
	only(t, objects, binding.RoleRef.Name, func(r *rbac.Role) string { return r.Name })

	route := only(t, objects, "smelt", func(r *gateway.HTTPRoute) string { return r.Name })
	require.Equal(t, p.Name, string(route.Spec.Rules[0].BackendRefs[0].Name))
	require.Equal(t, "InferencePool", string(*route.Spec.Rules[0].BackendRefs[0].Kind))
	only(t, objects, string(route.Spec.ParentRefs[0].Name), func(g *gateway.Gateway) string { return g.Name })
	for _, name := range []string{"interactive", "batch"} {
		o := only(t, objects, name, func(o *objective.InferenceObjective) string { return o.Name })
		require.Equal(t, p.Name, string(o.Spec.PoolRef.Name))
	}
}

// TestMistakes plants mistakes into the manifests: each is found.
func TestMistakes(t *testing.T) {
	v := validators(t)
	for _, c := range []struct{ old, planted string }{
		{"readOnlyRootFilesystem: true", "readOnlyRootFileSystem: true"},
		{"terminationGracePeriodSeconds: 130", "terminationGracePeriod: 130"},
		{"minAvailable: 1", "minAvailabel: 1"},
		{"averageValue: \"8\"", "averageValu: \"8\""},
		{"targetPorts:", "targetPort:"},
		{"failureMode: FailOpen", "failureMode: Open"},
		{"- number: 8080", "- number: 808080"},
		{"priority: 10", "priority: high"},
		{"type: PathPrefix", "type: Prefix"},
		{"request: 0s", "request: never"},
		{"verbs: [get, watch, list]", "verb: [get, watch, list]"},
		{"kind: HTTPRoute", "kind: HttpRoute"},
	} {
		planted := 0
		for _, d := range documents(t) {
			if !bytes.Contains(d, []byte(c.old)) {
				continue
			}
			planted++
			_, err := read(bytes.Replace(d, []byte(c.old), []byte(c.planted), 1), v)
			require.Error(t, err, c.planted)
		}
		require.Positive(t, planted, c.old)
	}
}
