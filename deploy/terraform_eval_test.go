package deploy_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// A terraform is the parsed code of a directory: its blocks by kind, and its locals.
type terraform struct {
	files     map[string][]byte // by path
	blocks    []*hclsyntax.Block
	variables map[string]*hclsyntax.Block
	locals    map[string]hclsyntax.Expression
	resources map[string]*hclsyntax.Block // by address: google_x.name, data.google_x.name
}

func readTerraform(t *testing.T) *terraform {
	t.Helper()
	tf := &terraform{
		files: map[string][]byte{}, variables: map[string]*hclsyntax.Block{},
		locals: map[string]hclsyntax.Expression{}, resources: map[string]*hclsyntax.Block{},
	}
	paths, err := filepath.Glob("terraform/*.tf")
	if err != nil || len(paths) < 5 {
		t.Fatalf("found %q, %v", paths, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file, diags := hclsyntax.ParseConfig(text, path, hcl.InitialPos)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		tf.files[path] = text
		for _, block := range file.Body.(*hclsyntax.Body).Blocks {
			tf.add(t, block)
		}
	}
	return tf
}

func (tf *terraform) add(t *testing.T, block *hclsyntax.Block) {
	t.Helper()
	tf.blocks = append(tf.blocks, block)
	switch block.Type {
	case "variable":
		tf.variables[block.Labels[0]] = block
	case "locals":
		for name, attribute := range block.Body.Attributes {
			tf.locals[name] = attribute.Expr
		}
	case "resource":
		tf.resources[block.Labels[0]+"."+block.Labels[1]] = block
	case "data":
		tf.resources["data."+block.Labels[0]+"."+block.Labels[1]] = block
	case "terraform", "provider", "output":
	default:
		t.Errorf("%s: this test does not know blocks of type %s", block.TypeRange, block.Type)
	}
}

// A node is an evaluated block: its arguments, and the blocks in it.
type node struct {
	values map[string]cty.Value
	blocks map[string][]node
}

// block returns the only block at a path of types; without one its arguments are empty.
func (n node) block(path ...string) node {
	for _, name := range path {
		blocks := n.blocks[name]
		if len(blocks) != 1 {
			return node{}
		}
		n = blocks[0]
	}
	return n
}

// text returns an argument, or "".
func (n node) text(name string) string {
	value, ok := n.values[name]
	if !ok {
		return ""
	}
	return asText(value)
}

func asText(value cty.Value) string {
	text, err := convert.Convert(value, cty.String)
	if err != nil || text.IsNull() {
		return fmt.Sprintf("%#v", value)
	}
	return text.AsString()
}

// A plan has the instances that Terraform would make, by the address of their resource.
type plan map[string][]node

// of returns the instances of the resources of a type.
func (p plan) of(kind string) []node {
	var all []node
	for _, address := range slices.Sorted(maps.Keys(p)) {
		if filepath.Ext(address) != "" && address[:len(address)-len(filepath.Ext(address))] == kind {
			all = append(all, p[address]...)
		}
	}
	return all
}

// one returns the only instance of a resource.
func (p plan) one(t *testing.T, address string) node {
	t.Helper()
	if len(p[address]) != 1 {
		t.Fatalf("got %d of %s, want one", len(p[address]), address)
	}
	return p[address][0]
}

const projectNumber = "123"

// inputs are values of the variables that have no default.
func inputs() map[string]cty.Value {
	return map[string]cty.Value{
		"project":     cty.StringVal("my-project"),
		"image":       cty.StringVal("us-docker.pkg.dev/my-project/countmill/countmill:v0.1.0"),
		"tokens_file": cty.StringVal("tokens"),
	}
}

// plan evaluates all resources with values of variables. It invents attributes that only Google's API
// knows; an id is the name.
func (tf *terraform) plan(t *testing.T, set map[string]cty.Value) plan {
	t.Helper()
	variables := map[string]cty.Value{}
	for name := range tf.variables {
		variables[name] = tf.variable(t, name, set[name])
	}
	e := evaluation{tf: tf, variables: variables, locals: map[string]cty.Value{}, objects: map[string]cty.Value{}, plan: plan{}}
	for left := -1; ; {
		pending, why := e.pass()
		if pending == 0 {
			e.outputs(t)
			return e.plan
		}
		if pending == left {
			t.Fatalf("%d values cannot be computed, among them: %v", pending, why)
		}
		left = pending
	}
}

// variable returns the value of a variable: the given one, that of inputs, or its default. It has the
// variable's type.
func (tf *terraform) variable(t *testing.T, name string, value cty.Value) cty.Value {
	t.Helper()
	body := tf.variables[name].Body
	if value == cty.NilVal {
		value = inputs()[name]
	}
	if byDefault := body.Attributes["default"]; value == cty.NilVal && byDefault != nil {
		var diags hcl.Diagnostics
		if value, diags = byDefault.Expr.Value(nil); diags.HasErrors() {
			t.Fatal(diags)
		}
	}
	if value == cty.NilVal {
		t.Fatalf("variable %s has no default: give it a value in inputs", name)
	}
	if body.Attributes["type"] == nil {
		t.Fatalf("variable %s has no type", name)
	}
	want, diags := typeexpr.TypeConstraint(body.Attributes["type"].Expr)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	value, err := convert.Convert(value, want)
	if err != nil {
		t.Fatalf("variable %s: %v", name, err)
	}
	return value
}

// functions are those of Terraform's that the code calls.
var functions = map[string]function.Function{
	"can":       tryfunc.CanFunc,
	"concat":    stdlib.ConcatFunc,
	"floor":     stdlib.FloorFunc,
	"regex":     stdlib.RegexFunc,
	"toset":     stdlib.MakeToFunc(cty.Set(cty.DynamicPseudoType)),
	"tostring":  stdlib.MakeToFunc(cty.String),
	"trimspace": stdlib.TrimSpaceFunc,
	"cidrhost": textFunction("cidrhost", 2, func(args []cty.Value) (cty.Value, error) {
		return hostOf(args[0].AsString(), args[1])
	}),
	"file": textFunction("file", 1, func(args []cty.Value) (cty.Value, error) {
		if name := args[0].AsString(); name != "tokens" {
			return cty.StringVal(""), nil
		}
		return cty.StringVal(`{"name":"web"}`), nil
	}),
}

// textFunction is a function that returns a text.
func textFunction(name string, parameters int, apply func([]cty.Value) (cty.Value, error)) function.Function {
	return function.New(&function.Spec{
		Description: name,
		Params:      slices.Repeat([]function.Parameter{{Name: "value", Type: cty.DynamicPseudoType}}, parameters),
		Type:        function.StaticReturnType(cty.String),
		Impl:        func(args []cty.Value, _ cty.Type) (cty.Value, error) { return apply(args) },
	})
}

// An evaluation computes locals and resources in the order of their references, by repeated passes.
type evaluation struct {
	tf                         *terraform
	variables, locals, objects map[string]cty.Value
	plan                       plan
}

// pass computes all that can be computed now. It returns how many values are pending, and why one is.
func (e *evaluation) pass() (pending int, why error) {
	for name, expr := range e.tf.locals {
		if _, ok := e.locals[name]; ok {
			continue
		}
		value, diags := expr.Value(e.context())
		if diags.HasErrors() {
			pending, why = pending+1, diags
			continue
		}
		e.locals[name] = value
	}
	for address, block := range e.tf.resources {
		if _, ok := e.objects[address]; ok {
			continue
		}
		if diags := e.resource(address, block); diags.HasErrors() {
			pending, why = pending+1, diags
		}
	}
	return pending, why
}

// outputs fails if an output cannot be computed.
func (e *evaluation) outputs(t *testing.T) {
	t.Helper()
	for _, block := range e.tf.blocks {
		if block.Type == "output" {
			if _, diags := evaluate(block.Body, e.context()); diags.HasErrors() {
				t.Error(diags)
			}
		}
	}
}

// context has the values computed so far.
func (e *evaluation) context() *hcl.EvalContext {
	byType := map[string]map[string]cty.Value{"data": {}}
	data := map[string]map[string]cty.Value{}
	for address, object := range e.objects {
		block, into := e.tf.resources[address], byType
		if block.Type == "data" {
			into = data
		}
		if into[block.Labels[0]] == nil {
			into[block.Labels[0]] = map[string]cty.Value{}
		}
		into[block.Labels[0]][block.Labels[1]] = object
	}
	for kind, objects := range data {
		byType["data"][kind] = cty.ObjectVal(objects)
	}
	scope := map[string]cty.Value{"var": cty.ObjectVal(e.variables), "local": cty.ObjectVal(e.locals)}
	for kind, objects := range byType {
		scope[kind] = cty.ObjectVal(objects)
	}
	return &hcl.EvalContext{Variables: scope, Functions: functions}
}

// resource computes the instances of a resource, and the object that other expressions see.
func (e *evaluation) resource(address string, block *hclsyntax.Block) hcl.Diagnostics {
	ctx := e.context()
	var instances []node
	var seen []cty.Value
	var diags hcl.Diagnostics
	one := func(ctx *hcl.EvalContext) {
		n, more := evaluate(block.Body, ctx)
		diags = append(diags, more...)
		instances = append(instances, n)
		seen = append(seen, outside(block.Labels[0], n))
	}
	var whole func() cty.Value
	switch attributes := block.Body.Attributes; {
	case attributes["count"] != nil:
		count, more := attributes["count"].Expr.Value(ctx)
		if diags = append(diags, more...); more.HasErrors() {
			return diags
		}
		n, _ := count.AsBigFloat().Int64()
		for range n {
			one(ctx)
		}
		whole = func() cty.Value { return cty.TupleVal(seen) }
	case attributes["for_each"] != nil:
		each, more := attributes["for_each"].Expr.Value(ctx)
		if diags = append(diags, more...); more.HasErrors() {
			return diags
		}
		eachOf(ctx, "each", each, one)
		whole = func() cty.Value { return cty.TupleVal(seen) }
	default:
		one(ctx)
		whole = func() cty.Value { return seen[0] }
	}
	if !diags.HasErrors() {
		e.plan[address], e.objects[address] = instances, whole()
	}
	return diags
}

// eachOf calls do with key and value of each element, under a name.
func eachOf(ctx *hcl.EvalContext, name string, elements cty.Value, do func(*hcl.EvalContext)) {
	for it := elements.ElementIterator(); it.Next(); {
		key, value := it.Element()
		child := ctx.NewChild()
		child.Variables = map[string]cty.Value{name: cty.ObjectVal(map[string]cty.Value{"key": key, "value": value})}
		do(child)
	}
}

// evaluate computes a block. Arguments that steer Terraform itself are left out.
func evaluate(body *hclsyntax.Body, ctx *hcl.EvalContext) (node, hcl.Diagnostics) {
	n := node{values: map[string]cty.Value{}, blocks: map[string][]node{}}
	var diags hcl.Diagnostics
	for name, attribute := range body.Attributes {
		if slices.Contains([]string{"count", "for_each", "depends_on"}, name) {
			continue
		}
		value, more := attribute.Expr.Value(ctx)
		diags = append(diags, more...)
		n.values[name] = value
	}
	inner := func(name string, body *hclsyntax.Body, ctx *hcl.EvalContext) {
		child, more := evaluate(body, ctx)
		diags = append(diags, more...)
		n.blocks[name] = append(n.blocks[name], child)
	}
	for _, block := range body.Blocks {
		switch block.Type {
		case "lifecycle":
		case "dynamic":
			elements, more := block.Body.Attributes["for_each"].Expr.Value(ctx)
			if diags = append(diags, more...); !more.HasErrors() {
				eachOf(ctx, block.Labels[0], elements, func(ctx *hcl.EvalContext) { inner(block.Labels[0], block.Body.Blocks[0].Body, ctx) })
			}
		default:
			inner(block.Type, block.Body, ctx)
		}
	}
	return n, diags
}

// outside is an instance as other expressions see it: its arguments, and invented attributes that the
// provider's documentation lists for its type.
func outside(kind string, n node) cty.Value {
	all := maps.Clone(n.values)
	if name, ok := all["name"]; ok {
		all["id"] = name
	}
	switch kind {
	case "google_project":
		all["number"] = cty.StringVal(projectNumber)
	case "google_service_account":
		all["email"] = cty.StringVal(n.text("account_id") + "@my-project.iam.gserviceaccount.com")
		all["member"] = cty.StringVal("serviceAccount:" + all["email"].AsString())
	case "google_secret_manager_secret":
		all["id"] = all["secret_id"]
	case "google_cloud_run_v2_service":
		all["uri"] = cty.StringVal("https://" + n.text("name"))
	case "google_memcache_instance":
		all["memcache_nodes"] = cty.TupleVal([]cty.Value{cty.ObjectVal(map[string]cty.Value{
			"host": cty.StringVal("10.0.0.3"), "port": cty.NumberIntVal(11211),
		})})
	}
	return cty.ObjectVal(all)
}
