package fakestore_test

import (
	"fmt"
	"testing"

	"github.com/countmill/countmill/backend/backendtest"
	"github.com/countmill/countmill/backend/backendtest/fakestore"
)

var _ backendtest.Store = (*fakestore.Store)(nil)

func TestStore(t *testing.T) {
	t.Parallel()
	for _, entities := range []int{400, 25} {
		t.Run(fmt.Sprint(entities), func(t *testing.T) {
			t.Parallel()
			backendtest.RunStore(t, func(t *testing.T) backendtest.Store {
				return fakestore.New(fakestore.Options{Entities: entities, Errorf: t.Errorf, Defer: fakestore.DeferSome(0.3, 1)})
			})
		})
	}
}
