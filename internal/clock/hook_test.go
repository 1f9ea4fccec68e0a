package clock

import "testing"

type hookTarget struct{ env *Env }

var _ = Hook(func(c *hookTarget, e *Env) { c.env = e })

func TestWithSetsTheFieldOfACopy(t *testing.T) {
	t.Parallel()
	before, e := hookTarget{}, &Env{}
	if after := With(before, e); after.env != e || before.env != nil {
		t.Errorf("With set %p in the copy and %p in its argument, want %p and nil", after.env, before.env, e)
	}
	defer func() {
		if recover() == nil {
			t.Error("With took a type without a Hook")
		}
	}()
	With(0, e)
}
