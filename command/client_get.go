package command

import (
	"context"
	"net/http"
	"time"
)

// get returns the body of a 2xx answer.
func (c *client) get(ctx context.Context, timeout time.Duration, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	return c.read(req)
}
