package httpapi

import (
	"fmt"
	"sync"

	"github.com/countmill/countmill"
)

// A share bounds how many answers of one kind are made at the same time: by all callers, and by each of them, so that one leaves
// room for others. Without tokens all callers are one.
type share struct {
	all, own int

	mu  sync.Mutex
	now int
	of  map[string]int // by the name of the caller's token
}

// enter counts one more answer until leave is called. what names these answers in the error, which matches countmill.ErrOverloaded.
func (s *share) enter(caller, what string) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.now >= s.all:
		return nil, fmt.Errorf("%w: %d %s", countmill.ErrOverloaded, s.all, what)
	case caller != "" && s.of[caller] >= s.own:
		return nil, fmt.Errorf("%w: %d %s for this token", countmill.ErrOverloaded, s.own, what)
	}
	if s.of == nil {
		s.of = make(map[string]int)
	}
	s.now++
	s.of[caller]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now--
		if s.of[caller]--; s.of[caller] == 0 {
			delete(s.of, caller)
		}
	}, nil
}
