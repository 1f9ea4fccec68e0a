package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v3"

	"github.com/countmill/countmill/command"
	"github.com/countmill/countmill/internal/testing/longtest"
)

const (
	chart = "helm/countmill"
	// kubernetes is the version whose schemas the chart has to meet.
	kubernetes = "1.30"
)

// needs are the values without which a mode does not work.
var needs = map[string]map[string]any{
	"up":     {"mode": "up"},
	"shared": {"mode": "shared", "store": "postgres://countmill@db/countmill"},
	"roles":  {"mode": "roles", "bus": "pubsub://p/t?subscription=s", "store": "datastore://p/d"},
}

// A toggle is a switch of the chart: its values when on and off, and how many objects of a kind it adds.
type toggle struct {
	name    string
	only    string // the mode that has it; the other one refuses it
	on, off map[string]any
	kind    string
	objects map[string]int // by mode
}

// toggles are all switches but the mode.
var toggles = []toggle{
	{name: "tokens", on: map[string]any{"tokens.secret": "t", "serviceMonitor.tokenSecret": "m"}, off: map[string]any{"tokens.insecure": true}},
	{name: "account", on: nil, off: map[string]any{"serviceAccount.create": false}, kind: "ServiceAccount", objects: map[string]int{"up": 1, "shared": 1, "roles": 1}},
	{name: "disruption", on: nil, off: map[string]any{"podDisruptionBudget.enabled": false}, kind: "PodDisruptionBudget", objects: map[string]int{"shared": 1, "roles": 4}},
	{name: "network", on: nil, off: map[string]any{"networkPolicy.enabled": false}, kind: "NetworkPolicy", objects: map[string]int{"up": 1, "shared": 1, "roles": 1}},
	{name: "monitor", on: map[string]any{"serviceMonitor.enabled": true}, off: nil, kind: "ServiceMonitor", objects: map[string]int{"up": 1, "shared": 1, "roles": 1}},
	{name: "keda", only: "roles", on: map[string]any{"keda.enabled": true, "keda.prometheus": "http://p:9090"}, off: nil, kind: "ScaledObject", objects: map[string]int{"roles": 1}},
	{name: "backups", only: "up", on: map[string]any{
		"up.backups.root": "/backups/a", "up.backups.volume": map[string]any{"persistentVolumeClaim": map[string]any{"claimName": "b"}},
	}},
}

// Every combination of all switches renders the objects that it should, and they meet the schemas of
// Kubernetes, KEDA and Prometheus Operator.
func TestChart(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "renders the chart 384 times")
	helm := needed(t, "helm")
	dir := t.TempDir()
	for mode := range needs {
		for bits := range 1 << len(toggles) {
			name, refused, set, want := combination(mode, bits)
			text, err := render(t, helm, set)
			if refused {
				if err == nil {
					t.Errorf("%s renders: a switch is not of this mode", name)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if got := kinds(t, text); !maps.Equal(got, want) {
				t.Errorf("%s: got objects %v, want %v", name, got, want)
			}
			checkPods(t, name, text)
			if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("schemas", func(t *testing.T) { validate(t, dir) })
}

// combination has the toggles on whose bits are set. It returns whether the chart has to refuse that, the
// values, and the number of objects of each kind.
func combination(mode string, bits int) (name string, refused bool, set map[string]any, objects map[string]int) {
	name, set = mode, maps.Clone(needs[mode])
	objects = map[string]int{"StatefulSet": 1, "Service": 1}
	switch mode {
	case "shared":
		objects = map[string]int{"Deployment": 1, "Service": 1}
	case "roles":
		objects = map[string]int{"Deployment": 4, "Service": 4}
	}
	for i, s := range toggles {
		if bits>>i&1 == 0 {
			maps.Copy(set, s.off)
			continue
		}
		name += "-" + s.name
		refused = refused || s.only != "" && s.only != mode
		maps.Copy(set, s.on)
		if s.objects[mode] > 0 {
			objects[s.kind] = s.objects[mode]
		}
	}
	return name, refused, set, objects
}

// Without the indexer its objects are gone, and the others stay.
func TestChartWithoutIndexer(t *testing.T) {
	t.Parallel()
	helm := needed(t, "helm")
	_, _, set, _ := combination("roles", 1<<len(toggles)-1)
	maps.DeleteFunc(set, func(path string, _ any) bool { return strings.HasPrefix(path, "up.") })
	set["indexer.enabled"] = false
	text, err := render(t, helm, set)
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]int{"Deployment": 3, "Service": 3, "PodDisruptionBudget": 3, "ServiceMonitor": 1} {
		if got := kinds(t, text)[kind]; got != want || strings.Contains(text, "indexer") {
			t.Errorf("got %d of %s, want %d without the indexer", got, kind, want)
		}
	}
}

// helm lint finds nothing, and each mistake in the values has its message.
func TestChartMistakes(t *testing.T) {
	t.Parallel()
	helm := needed(t, "helm")
	if out, err := bounded(t, helm, "lint", "--strict", chart).CombinedOutput(); err != nil {
		t.Errorf("helm lint: %v\n%s", err, out)
	}
	for _, test := range []struct {
		mode string
		set  map[string]any
		want string
	}{
		{"up", nil, "set tokens.secret, or tokens.insecure=true"},
		{"up", map[string]any{"tokens.insecure": true, "mode": "down"}, `mode is "down"; use up, shared or roles`},
		{"shared", map[string]any{"tokens.insecure": true, "store": ""}, "mode shared needs store, or storeSecret"},
		{"shared", map[string]any{"tokens.insecure": true, "up.backups.root": "gs://b"}, "up.backups.root needs mode up"},
		{"roles", map[string]any{"tokens.insecure": true, "bus": ""}, "mode roles needs bus and store"},
		{"roles", map[string]any{"tokens.insecure": true, "keda.enabled": true, "keda.prometheus": "http://p", "keda.minReplicas": 0}, "keda.minReplicas must be 1 or more"},
		{"roles", map[string]any{"tokens.insecure": true, "keda.enabled": true}, "keda.enabled needs keda.prometheus"},
		{"up", map[string]any{"tokens.insecure": true, "up.backups.root": "/backups"}, "name its volume in up.backups.volume"},
		{"up", map[string]any{"tokens.insecure": true, "up.backups.root": "/data/backups"}, `up.backups.root is "/data/backups"; use /backups`},
		{"roles", map[string]any{"tokens.insecure": true, "up.backups.root": "gs://b"}, "up.backups.root needs mode up"},
		{"roles", map[string]any{"tokens.secret": "t", "serviceMonitor.enabled": true}, "serviceMonitor.enabled needs serviceMonitor.tokenSecret"},
	} {
		set := maps.Clone(needs[test.mode])
		maps.Copy(set, test.set)
		if _, err := render(t, helm, set); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: got %v, want %q", test.set, err, test.want)
		}
	}
}

// The page about Kubernetes has the requests and limits of values.yaml. A request is at least 1.5 times
// the memory and twice the CPU that the page says were measured, and a limit twice the role's bounds.
func TestChartResources(t *testing.T) {
	t.Parallel()
	type resources struct {
		Requests struct{ CPU, Memory string }
		Limits   struct{ Memory string }
	}
	var values map[string]yaml.Node
	text, err := os.ReadFile(chart + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/howto/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	bounds := memoryBounds(t)
	for _, role := range []string{"up", "publisher", "aggregator", "reader"} {
		var of struct{ Resources resources }
		node := values[role]
		if err := node.Decode(&of); err != nil {
			t.Fatal(err)
		}
		r := of.Resources
		end := fmt.Sprintf(" %s, %s | %s |", r.Requests.CPU, r.Requests.Memory, r.Limits.Memory)
		row := regexp.MustCompile(`(?m)^\| ` + role + ` \| .* ([0-9.]+) \|` + regexp.QuoteMeta(end) + `$`).FindStringSubmatch(string(page))
		if row == nil {
			t.Errorf("docs/howto/kubernetes.md has no row of %s that ends with %q", role, end)
			continue
		}
		for _, memory := range regexp.MustCompile(`(\d+) MiB`).FindAllStringSubmatch(row[0], -1) {
			if most, request := figure(t, memory[1]), figure(t, strings.TrimSuffix(r.Requests.Memory, "Mi")); request < 1.5*most {
				t.Errorf("%s asks for %s, and needed %s MiB", role, r.Requests.Memory, memory[1])
			}
		}
		if request := figure(t, strings.TrimSuffix(r.Requests.CPU, "m")); request < 2000*figure(t, row[1]) {
			t.Errorf("%s asks for %s CPUs, and needed %s", role, r.Requests.CPU, row[1])
		}
		if limit := 1024 * figure(t, strings.TrimSuffix(r.Limits.Memory, "Gi")); bounds[role] == 0 || limit < 2*bounds[role] {
			t.Errorf("%s has a limit of %s, and bounds of %.0f MiB", role, r.Limits.Memory, bounds[role])
		}
	}
}

// memoryBounds are the sums, in MiB, of the rows of a role in docs/reference/limits.md.
func memoryBounds(t *testing.T) map[string]float64 {
	t.Helper()
	page, err := os.ReadFile("../docs/reference/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| role | for | setting | MiB |")
	sums := make(map[string]float64)
	role := ""
	for _, row := range regexp.MustCompile(`(?m)^\| (.*?) ?\| .* \| ([0-9,]+) \|$`).FindAllStringSubmatch(table, -1) {
		if row[1] != "" {
			role = row[1]
		}
		sums[role] += figure(t, strings.ReplaceAll(row[2], ",", ""))
	}
	sums["up"] = sums["aggregator"] + sums["`pebble:`, whatever `--memory` is"] + sums["publisher"] + sums["reader"]
	sums["aggregator"] += sums["aggregator with `pubsub:`"]
	return sums
}

func figure(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// validate fails unless the objects of the files meet the schemas of Kubernetes, KEDA and Prometheus
// Operator.
func validate(t *testing.T, dir string) {
	t.Helper()
	program := needed(t, "kubectl-validate")
	if out, err := bounded(t, program, "--version", kubernetes, "--local-crds", "testdata/crds", dir).CombinedOutput(); err != nil {
		t.Errorf("kubectl-validate: %v\n%s", err, out)
	}
}

// render returns the objects of the chart with values, by their paths.
func render(t *testing.T, helm string, set map[string]any) (string, error) {
	t.Helper()
	args := []string{"template", "test", chart, "--namespace", "ns", "--kube-version", kubernetes}
	for _, path := range slices.Sorted(maps.Keys(set)) {
		value, err := json.Marshal(set[path])
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, "--set-json", path+"="+string(value))
	}
	out, err := bounded(t, helm, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("helm template: %w\n%s", err, out)
	}
	return string(out), nil
}

// bounded is a command that ends within some minutes.
func bounded(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, program, args...)
}

// An object is the part of a rendered object that these tests judge.
type object struct {
	Kind string
	Spec struct {
		Template struct {
			Spec struct {
				Grace           int `yaml:"terminationGracePeriodSeconds"`
				SecurityContext struct {
					RunAsNonRoot bool `yaml:"runAsNonRoot"`
				} `yaml:"securityContext"`
				Containers []container
				Volumes    []named
			}
		}
		Claims []struct{ Metadata named } `yaml:"volumeClaimTemplates"`
	}
}

type named struct{ Name string }

type container struct {
	Args            []string
	Env             []struct{ Name, Value string }
	Resources       struct{ Requests, Limits map[string]string }
	SecurityContext struct {
		ReadOnly bool  `yaml:"readOnlyRootFilesystem"`
		Gains    *bool `yaml:"allowPrivilegeEscalation"`
	} `yaml:"securityContext"`
	Readiness probe `yaml:"readinessProbe"`
	Liveness  probe `yaml:"livenessProbe"`
	Lifecycle struct {
		PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
	}
	Mounts []struct {
		Name string
		Path string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

func objects(t *testing.T, text string) []object {
	t.Helper()
	var all []object
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var o object
		if err := decoder.Decode(&o); err != nil {
			return all
		}
		all = append(all, o)
	}
}

func kinds(t *testing.T, text string) map[string]int {
	t.Helper()
	all := map[string]int{}
	for _, o := range objects(t, text) {
		all[o.Kind]++
	}
	return all
}

// checkPods fails unless the binary accepts the arguments of each pod, and each pod is stopped slowly enough
// and runs with few rights.
func checkPods(t *testing.T, name, text string) {
	t.Helper()
	for _, o := range objects(t, text) {
		if o.Kind != "Deployment" && o.Kind != "StatefulSet" {
			continue
		}
		pod := o.Spec.Template.Spec
		if len(pod.Containers) != 1 || len(pod.Containers[0].Args) == 0 {
			t.Fatalf("%s: got containers %+v, want one with arguments", name, pod.Containers)
		}
		c := pod.Containers[0]
		env := make(types.MappingWithEquals)
		for _, variable := range c.Env {
			if variable.Name == "COUNTMILL_STORE" && variable.Value == "" { // a Secret has it
				variable.Value = "postgres://countmill@db/countmill"
			}
			env[variable.Name] = &variable.Value
		}
		if unknown := command.UnknownEnv(pairs(env)); len(unknown) > 0 {
			t.Errorf("%s: nobody reads %q", name, unknown)
		}
		path, flags := split(c.Args)
		settings, err := command.Settings(path, flags, lookupIn(env))
		if err != nil {
			t.Errorf("%s: %q: %v", name, c.Args, err)
		}
		stop := 0 * time.Second
		for _, s := range settings {
			if s.Name == "shutdown-timeout" {
				stop, _ = time.ParseDuration(s.Value)
			}
		}
		pre := c.Lifecycle.PreStop.Sleep.Seconds
		if grace := time.Duration(pod.Grace-pre) * time.Second; stop == 0 || grace <= stop || (pre > 0) == uncalled[path] {
			t.Errorf("%s: %s gets %d s to end, of them %d before the signal, and needs %s", name, c.Args[0], pod.Grace, pre, stop)
		}
		if !pod.SecurityContext.RunAsNonRoot || !c.SecurityContext.ReadOnly || c.SecurityContext.Gains == nil || *c.SecurityContext.Gains {
			t.Errorf("%s: %s may be root, write or gain rights", name, c.Args[0])
		}
		if c.Resources.Requests["cpu"] == "" || c.Resources.Limits["memory"] == "" {
			t.Errorf("%s: %s has resources %+v", name, c.Args[0], c.Resources)
		}
		if c.Readiness.HTTPGet.Path != "/readyz" || c.Liveness.HTTPGet.Path != "/healthz" {
			t.Errorf("%s: %s has probes %+v, %+v", name, c.Args[0], c.Readiness, c.Liveness)
		}
		checkVolumes(t, name, o, settings)
	}
}

// uncalled are the commands to which nobody sends requests: they need no time before they stop.
var uncalled = map[string]bool{"aggregator": true, "index work": true}

// split returns the command and the flags of the arguments of a container.
func split(args []string) (path string, flags []string) {
	at := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "-") })
	if at < 0 {
		at = len(args)
	}
	return strings.Join(args[:at], " "), args[at:]
}

// checkVolumes fails unless each volume is mounted, each mount is of a volume, and the directories of the
// settings are in mounts: the rest of the file system is read-only.
func checkVolumes(t *testing.T, name string, o object, settings []command.Setting) {
	t.Helper()
	volumes := make(map[named]bool)
	for _, v := range o.Spec.Template.Spec.Volumes {
		volumes[v] = true
	}
	for _, c := range o.Spec.Claims {
		volumes[c.Metadata] = true
	}
	mounts := o.Spec.Template.Spec.Containers[0].Mounts
	for _, m := range mounts {
		if !volumes[named{m.Name}] {
			t.Errorf("%s: %s mounts %s, which is no volume", name, o.Kind, m.Name)
		}
		delete(volumes, named{m.Name})
	}
	if len(volumes) > 0 {
		t.Errorf("%s: %s mounts nowhere %v", name, o.Kind, volumes)
	}
	for _, s := range settings {
		dir, _ := strings.CutPrefix(s.Value, "pebble:")
		if s.Name != "store" && s.Name != "backup-root" && s.Name != "tokens" || !filepath.IsAbs(dir) {
			continue
		}
		in := false
		for _, m := range mounts {
			in = in || strings.HasPrefix(dir+"/", m.Path+"/")
		}
		if !in {
			t.Errorf("%s: --%s is %s, which is in none of %v", name, s.Name, dir, mounts)
		}
	}
}
