package publisher

import (
	"errors"
	"testing"

	"github.com/countmill/countmill"
)

func TestGroupsAreNotIncremented(t *testing.T) {
	p := open(t, nullBus{}, Config{})
	_, handle := p.Counter("=site:a")
	_, publish := p.Publish(t.Context(), countmill.Increment{Counter: "=site:a", Delta: 1}, countmill.Increment{Counter: "a", Delta: 1})
	for what, err := range map[string]error{"Add": p.Add("=site:a", 1), "Counter": handle, "Publish": publish} {
		if field, ok := errors.AsType[*countmill.FieldError](err); !ok || field.Field != "counter" || !errors.Is(err, countmill.ErrInvalid) {
			t.Errorf("%s: got %v, want the field counter", what, err)
		}
	}
}
