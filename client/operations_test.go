package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
)

// otherwise are operations without a method, each with the reason.
var otherwise = map[string]string{"GET /v1/totals": "POST /v1/totals has the same answer, for more counters"}

// Every operation of the API has a method. The test calls each method with an argument of some kind.
func TestEveryOperationHasAMethod(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../internal/httpserver/openapi.json")
	must(t, err)
	var doc struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	must(t, json.Unmarshal(text, &doc))
	asked := callAll(t)
	for path, methods := range doc.Paths {
		for method, op := range methods {
			call := strings.ToUpper(method) + " " + path
			pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(call), `\{name\}`, "[^/]+") + "$")
			found := false
			for a := range asked {
				found = found || pattern.MatchString(a)
			}
			if found == (otherwise[call] != "") {
				t.Errorf("%s (%s): a method of Client calls it: %t, and the reason for none is %q", op.OperationID, call, found, otherwise[call])
			}
		}
	}
}

// callAll calls every method, and returns the requests of a server.
func callAll(t *testing.T) map[string]bool {
	t.Helper()
	var mu sync.Mutex
	asked := make(map[string]bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked[r.Method+" "+r.URL.Path] = true
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"type":"urn:countmill:problem:not-found","status":404}`)
	}))
	defer server.Close()
	c := reflect.ValueOf(open(t, server.URL, client.WithTries(1), client.WithTimeout(time.Minute)))
	for _, kind := range []client.RuleKind{client.KindSeries, client.KindJournal} {
		for i := range c.NumMethod() {
			method := c.Method(i)
			if method.Type().NumIn() == 0 || method.Type().In(0) != reflect.TypeFor[context.Context]() {
				continue
			}
			args := []reflect.Value{reflect.ValueOf(t.Context())}
			for j := 1; j < method.Type().NumIn(); j++ {
				if in := method.Type().In(j); !method.Type().IsVariadic() || j < method.Type().NumIn()-1 {
					args = append(args, some(in, kind))
				}
			}
			drain(method.Call(args)[0])
		}
	}
	return asked
}

// some is a value that no method refuses.
func some(of reflect.Type, kind client.RuleKind) reflect.Value {
	v := reflect.New(of).Elem()
	switch {
	case of == reflect.TypeFor[client.RuleKind]():
		return reflect.ValueOf(kind)
	case of == reflect.TypeFor[client.Request]():
		return reflect.ValueOf(client.Request{Path: "/"})
	case of == reflect.TypeFor[countmill.Increment]():
		return reflect.ValueOf(countmill.Increment{Counter: "a", Delta: 1})
	case of.Kind() == reflect.String:
		v.SetString("a")
	case of.Kind() == reflect.Int:
		v.SetInt(1)
	case of.Kind() == reflect.Slice:
		return reflect.Append(v, some(of.Elem(), kind))
	case of.Kind() == reflect.Uint8:
		v.SetUint(1)
	case of.Kind() == reflect.Struct && of.PkgPath() != "time":
		for i := range of.NumField() {
			if of.Field(i).IsExported() && of.Field(i).Type.Kind() == reflect.String {
				v.Field(i).SetString("a")
			}
		}
	}
	return v
}

// drain starts an iterator.
func drain(v reflect.Value) {
	switch next := v.Interface().(type) {
	case iter.Seq2[client.Total, error]:
		next(func(client.Total, error) bool { return false })
	case iter.Seq2[client.Update, error]:
		next(func(client.Update, error) bool { return false })
	case iter.Seq2[client.Top, error]:
		next(func(client.Top, error) bool { return false })
	case iter.Seq2[client.Rank, error]:
		next(func(client.Rank, error) bool { return false })
	}
}
