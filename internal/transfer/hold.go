package transfer

import "errors"

// ErrHeld says that another command works with a file.
var ErrHeld = errors.New("another command works with it")
