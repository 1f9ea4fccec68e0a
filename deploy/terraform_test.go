package deploy_test

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store/protocol"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/countmill/countmill/command"
)

// The files are formatted as `terraform fmt` does it.
func TestTerraformFormat(t *testing.T) {
	t.Parallel()
	for path, text := range readTerraform(t).files {
		if formatted := hclwrite.Format(text); string(formatted) != string(text) {
			t.Errorf("%s is not formatted (-got +want):\n%s", path, cmp.Diff(string(text), string(formatted)))
		}
	}
}

func number(n float64) cty.Value { return cty.NumberFloatVal(n) }

func between(low, high int64) cty.Value {
	return cty.ObjectVal(map[string]cty.Value{"min": cty.NumberIntVal(low), "max": cty.NumberIntVal(high)})
}

// wrong are values that must be refused.
var wrong = map[string][]cty.Value{
	"project":         {cty.StringVal("My Project"), cty.StringVal("123456")},
	"name":            {cty.StringVal("abc"), cty.StringVal("a-name-of-20-letters"), cty.StringVal("Count"), cty.StringVal("count-")},
	"image":           {cty.StringVal("us-docker.pkg.dev/my-project/countmill/countmill"), cty.StringVal("localhost:5000/countmill")},
	"tokens_file":     {cty.StringVal("empty")},
	"aggregators":     {number(0), number(-1), number(1.5)},
	"indexers":        {number(-1), number(1.5)},
	"publishers":      {between(-1, 2), between(0, 0), between(3, 2)},
	"readers":         {between(-1, 2), between(0, 0), between(3, 2)},
	"cache_mb":        {number(512), number(-1)},
	"cache_subnet":    {cty.StringVal("10.80.0.0"), cty.StringVal("10.80.0.0/27")},
	"billing_account": {cty.StringVal("my account")},
	"monthly_budget":  {number(0), number(0.5)},
}

// Each variable has a type and a description, and its validation takes the default and refuses mistakes.
func TestTerraformVariables(t *testing.T) {
	t.Parallel()
	tf := readTerraform(t)
	for name, block := range tf.variables {
		if block.Body.Attributes["description"] == nil {
			t.Errorf("variable %s has no description", name)
		}
		if len(block.Body.Blocks) == 0 {
			if len(wrong[name]) > 0 {
				t.Errorf("variable %s has no validation", name)
			}
			continue
		}
		if len(wrong[name]) == 0 {
			t.Errorf("variable %s has a validation: add values that it refuses to this test", name)
		}
		if !tf.accepts(t, name, tf.variable(t, name, cty.NilVal)) {
			t.Errorf("variable %s refuses a good value", name)
		}
		for _, value := range wrong[name] {
			if tf.accepts(t, name, tf.variable(t, name, value)) {
				t.Errorf("variable %s takes %#v", name, value)
			}
		}
	}
}

// accepts evaluates the validation of a variable.
func (tf *terraform) accepts(t *testing.T, name string, value cty.Value) bool {
	t.Helper()
	ctx := &hcl.EvalContext{Functions: functions, Variables: map[string]cty.Value{"var": cty.ObjectVal(map[string]cty.Value{name: value})}}
	for _, block := range tf.variables[name].Body.Blocks {
		good, diags := block.Body.Attributes["condition"].Expr.Value(ctx)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		if good.False() {
			return false
		}
	}
	return true
}

// hostOf is Terraform's cidrhost: an address of a network.
func hostOf(network string, n cty.Value) (cty.Value, error) {
	prefix, err := netip.ParsePrefix(network)
	if err != nil {
		return cty.NilVal, err
	}
	host, _ := n.AsBigFloat().Int64()
	if bits := prefix.Addr().BitLen() - prefix.Bits(); bits < 31 && host >= 1<<bits {
		return cty.NilVal, fmt.Errorf("%s has no address %d", network, host)
	}
	return cty.StringVal(network), nil
}

const cloudRun = "google_cloud_run_v2_"

// deployed are the resources that run the roles.
var deployed = map[string]string{"publisher": cloudRun + "service.publisher", "reader": cloudRun + "service.reader", "aggregator": cloudRun + "worker_pool.aggregator", "indexer": cloudRun + "worker_pool.indexer"}

// The binary accepts the arguments of each container with every switch on and off, and the rest of the
// container fits them.
func TestTerraformContainers(t *testing.T) {
	t.Parallel()
	tf := readTerraform(t)
	page := strings.ReplaceAll(googlePage(t), "PROJECT", "my-project")
	for bits := range 4 {
		first, cached := bits&1 > 0, bits&2 > 0
		set := map[string]cty.Value{"first_start": cty.BoolVal(first), "cache_mb": number(0)}
		if cached {
			set["cache_mb"] = number(1024)
		}
		plan := tf.plan(t, set)
		for role, address := range deployed {
			name := fmt.Sprintf("%s, first start %t, cache %t", role, first, cached)
			c := checkContainer(t, name, role, plan.one(t, address))
			settings := settingsOf(t, name, c)
			if want := strconv.FormatBool(first); role == "aggregator" && settings["create"] != want {
				t.Errorf("%s: --create is %s", name, settings["create"])
			}
			if want := map[bool]string{false: "memory:", true: "memcached://10.0.0.3:11211"}[cached]; role == "reader" && settings["cache"] != want {
				t.Errorf("%s: --cache is %s, want %s", name, settings["cache"], want)
			}
			row := regexp.MustCompile(`(?m)^countmill ` + commandOf(role) + ` .*$`).FindString(page)
			for _, flag := range []string{"bus", "store"} {
				if want := "--" + flag + " " + settings[flag] + " "; settings[flag] != "" && !strings.Contains(strings.ReplaceAll(row, "'", "")+" ", want) {
					t.Errorf("%s: docs/howto/google-cloud.md has %q, without %s", name, row, want)
				}
			}
		}
		egress := plan.one(t, deployed["reader"]).block("template", "vpc_access").text("egress")
		if (egress == "PRIVATE_RANGES_ONLY") != cached {
			t.Errorf("cache %t: readers have egress %q", cached, egress)
		}
	}
}

// settingsOf returns the settings of a container by their names.
func settingsOf(t *testing.T, name string, c node) map[string]string {
	t.Helper()
	var args []string
	for _, arg := range c.values["args"].AsValueSlice() {
		args = append(args, arg.AsString())
	}
	path, flags := split(args)
	settings, err := command.Settings(path, flags, lookupIn(nil))
	if err != nil {
		t.Fatalf("%s: %q: %v", name, args, err)
	}
	all := map[string]string{"": path}
	for _, s := range settings {
		all[s.Name] = s.Value
	}
	return all
}

// commandOf is the command that runs a role alone.
func commandOf(role string) string {
	if role == "indexer" {
		return "index work"
	}
	return role
}

// checkContainer checks all that is the same with every switch. It returns the container.
func checkContainer(t *testing.T, name, role string, resource node) node {
	t.Helper()
	template := resource.block("template")
	c := template.block("containers")
	settings := settingsOf(t, name, c)
	if settings[""] != commandOf(role) {
		t.Errorf("%s: runs %s", name, settings[""])
	}
	if account := template.text("service_account"); account != "countmill-"+role+"@my-project.iam.gserviceaccount.com" {
		t.Errorf("%s: runs as %s", name, account)
	}
	port := c.block("ports").text("container_port")
	probes := map[string]string{"startup_probe": "/healthz", "liveness_probe": "/healthz", "readiness_probe": "/readyz"}
	if role == "aggregator" || role == "indexer" { // a worker pool has neither ports nor readiness probes
		port = c.block("startup_probe", "http_get").text("port")
		delete(probes, "readiness_probe")
	}
	if settings["listen"] != "0.0.0.0:"+port {
		t.Errorf("%s: listens on %s, and is asked at port %s", name, settings["listen"], port)
	}
	for probe, path := range probes {
		get := c.block(probe, "http_get")
		if other := get.text("port"); get.text("path") != path || other != "" && other != port {
			t.Errorf("%s: %s asks %s at port %q", name, probe, get.text("path"), other)
		}
	}
	checkRoutes(t, probes)
	files := template.block("volumes", "secret")
	mode, err := strconv.ParseUint(files.text("default_mode"), 10, 32)
	if err != nil || mode&0o222 != 0 || mode&0o444 != 0o444 {
		t.Errorf("%s: the file of tokens has mode %o (%v)", name, mode, err)
	}
	if mounted := c.block("volume_mounts").text("mount_path") + "/" + files.block("items").text("path"); settings["tokens"] != mounted {
		t.Errorf("%s: reads tokens from %s, and they are at %s", name, settings["tokens"], mounted)
	}
	if stop, err := time.ParseDuration(settings["shutdown-timeout"]); err != nil || stop >= 10*time.Second {
		t.Errorf("%s: stops within %s (%v); Cloud Run waits 10 s", name, stop, err)
	}
	return c
}

// checkRoutes fails unless the API has the paths of probes.
func checkRoutes(t *testing.T, probes map[string]string) {
	t.Helper()
	text, err := os.ReadFile("../internal/httpserver/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	for probe, path := range probes {
		if !strings.Contains(string(text), `"`+path+`": {`) {
			t.Errorf("%s asks %s, which the API does not have", probe, path)
		}
	}
}

// Switches make the resources that they should, and no others.
func TestTerraformSwitches(t *testing.T) {
	t.Parallel()
	tf := readTerraform(t)
	member := cty.SetVal([]cty.Value{cty.StringVal("allUsers")})
	for _, test := range []struct {
		name string
		set  map[string]cty.Value
		want map[string]int // instances by type
	}{
		{"defaults", nil, map[string]int{"google_memcache_instance": 0, "google_compute_network": 0, "google_billing_budget": 0, cloudRun + "service_iam_member": 0, cloudRun + "worker_pool": 2}},
		{"no indexer", map[string]cty.Value{"indexers": number(0)}, map[string]int{cloudRun + "worker_pool": 1}},
		{"a cache", map[string]cty.Value{"cache_mb": number(1024)}, map[string]int{
			"google_memcache_instance": 1, "google_compute_network": 1, "google_compute_subnetwork": 1, "google_compute_global_address": 1, "google_service_networking_connection": 1,
		}},
		{"a budget", map[string]cty.Value{"billing_account": cty.StringVal("012345-6789AB-CDEF01")}, map[string]int{"google_billing_budget": 1}},
		{"invokers", map[string]cty.Value{"invokers": member}, map[string]int{cloudRun + "service_iam_member": 2}},
	} {
		plan := tf.plan(t, test.set)
		for kind, want := range test.want {
			if got := len(plan.of(kind)); got != want {
				t.Errorf("%s: got %d of %s, want %d", test.name, got, kind, want)
			}
		}
	}
	for _, protected := range []bool{true, false} {
		plan := tf.plan(t, map[string]cty.Value{"protected": cty.BoolVal(protected)})
		want := map[bool]string{true: "PREVENT", false: "DELETE"}[protected]
		for _, kind := range []string{"google_pubsub_topic", "google_pubsub_subscription", "google_firestore_database"} {
			if len(plan.of(kind)) == 0 {
				t.Errorf("there is no %s", kind)
			}
			for _, n := range plan.of(kind) {
				if got := n.text("deletion_policy"); got != want {
					t.Errorf("protected %t: %s %s has deletion_policy %q", protected, kind, n.text("name"), got)
				}
			}
		}
	}
	reader := tf.plan(t, map[string]cty.Value{"reader_changes": cty.True}).one(t, "google_project_iam_member.reader")
	if got := reader.text("role"); got != "roles/datastore.user" {
		t.Errorf("readers that change counters have %s", got)
	}
}

// Roles are those of docs/howto/google-cloud.md, and TTL policies those of the code.
func TestTerraformIsThePage(t *testing.T) {
	t.Parallel()
	plan := readTerraform(t).plan(t, nil)
	if diff := cmp.Diff(grantedOnPage(t), granted(plan)); diff != "" {
		t.Errorf("roles of the page (-) and in deploy/terraform (+):\n%s", diff)
	}
	var kinds []string
	for _, field := range plan.of("google_firestore_field") {
		if len(field.blocks["ttl_config"]) != 1 || len(field.blocks["index_config"]) != 0 {
			t.Errorf("the field of %s has blocks %v, want ttl_config alone", field.text("collection"), field.blocks)
		}
		kinds = append(kinds, field.text("collection"))
	}
	slices.Sort(kinds)
	var want []string
	for _, kind := range protocol.Kinds {
		if kind.Expires {
			want = append(want, "Countmill"+strings.ToUpper(kind.Name[:1])+kind.Name[1:])
		}
	}
	if slices.Sort(want); !slices.Equal(kinds, want) {
		t.Errorf("TTL policies are on %q, want %q", kinds, want)
	}
}

func googlePage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../docs/howto/google-cloud.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// grantedOnPage returns the roles that the commands of the page grant in a shell, each with its place and its member.
func grantedOnPage(t *testing.T) (all []string) {
	t.Helper()
	block := regexp.MustCompile("(?s)```text\n(PUBLISHER=.*?)```").FindStringSubmatch(googlePage(t))
	if block == nil {
		t.Fatal("the page has no commands that grant roles")
	}
	out := run(t, "sh", "-euc", `PROJECT=my-project; gcloud() { case "$*" in *describe*) echo `+projectNumber+` ;; *) echo "$*" ;; esac; }; `+block[1])
	for _, m := range regexp.MustCompile(`(\w+)s add-iam-policy-binding (\S+) .*--member=(\S+) --role=(\S+)`).FindAllStringSubmatch(out, -1) {
		all = append(all, strings.Join(m[1:], " "))
	}
	slices.Sort(all)
	return all
}

// granted returns the roles that a plan grants. Every account may also read the file of tokens, which the
// page has in words.
func granted(p plan) []string {
	var all []string
	for address, nodes := range p {
		for _, n := range nodes {
			member, role := n.text("member"), n.text("role")
			if role == "" || role == "roles/secretmanager.secretAccessor" && n.text("secret_id") == "countmill-tokens" {
				continue
			}
			place := address
			for _, kind := range []string{"topic", "subscription", "project"} {
				if name := n.text(kind); name != "" {
					place = kind + " " + name
				}
			}
			all = append(all, place+" "+member+" "+role)
		}
	}
	slices.Sort(all)
	return all
}
