package clock

import (
	"fmt"
	"reflect"
)

// hooks has a function for each type of config with an Env, by that type. Packages add to it
// while the program is initialised, and nobody writes to it later.
var hooks = make(map[reflect.Type]any)

// Hook lets With set the Env of configs of type C. The field is not exported, because users have
// no reason to set it. A package calls Hook in the declaration of a package variable.
func Hook[C any](set func(*C, *Env)) struct{} {
	hooks[reflect.TypeFor[C]()] = set
	return struct{}{}
}

// With returns the config of a role with e as its Env. It panics for a type without a Hook.
func With[C any](cfg C, e *Env) C {
	set, ok := hooks[reflect.TypeFor[C]()].(func(*C, *Env))
	if !ok {
		panic(fmt.Sprintf("clock: %T has no Hook", cfg))
	}
	set(&cfg, e)
	return cfg
}
