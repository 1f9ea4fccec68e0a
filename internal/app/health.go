package app

import (
	"context"
	"fmt"
	"strings"

	"github.com/countmill/countmill"
)

// errStopping is the reason why a stopping process is not ready.
var errStopping = fmt.Errorf("%w: this process is stopping", countmill.ErrClosed)

// ready returns why the process cannot do its work. degraded names a part that is missing,
// if the process works without it.
func (a *App) ready(ctx context.Context) (degraded string, err error) {
	if a.stopping.Load() {
		return "", errStopping
	}
	if a.publisher != nil {
		if err := a.publisher.Ready(); err != nil {
			return "", fmt.Errorf("publisher: %w", err)
		}
	}
	if a.aggregator != nil {
		if err := a.aggregator.Ready(); err != nil {
			return "", fmt.Errorf("aggregator: %w", err)
		}
	}
	if a.backends.busReady != nil {
		if err := a.backends.busReady(); err != nil {
			return "", fmt.Errorf("bus: %w", err)
		}
	}
	if a.reader != nil {
		if degraded, err = a.reader.Ready(ctx); err != nil {
			return "", fmt.Errorf("reader: %w", err)
		}
	}
	if a.aggregator != nil {
		degraded = alsoDegraded(degraded, "aggregator", a.aggregator.Degraded())
	}
	degraded = alsoDegraded(degraded, "store", a.space.degraded())
	return alsoDegraded(degraded, "tokens", a.tokensDegraded()), nil
}

// alsoDegraded adds a reason to the text, unless it is empty.
func alsoDegraded(degraded, part, without string) string {
	if without == "" {
		return degraded
	}
	return strings.TrimPrefix(degraded+"; "+part+": "+without, "; ")
}

func (a *App) tokensDegraded() string {
	switch {
	case a.tokens == nil:
		return ""
	case a.tokens.Err() != nil:
		return fmt.Sprintf("those of before are in force: %v", a.tokens.Err())
	case a.tokens.Len() == 0:
		return "the file holds none, so every call is refused"
	}
	return ""
}
