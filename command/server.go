package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/client"
)

// client is for the server and the token that the flags name.
func (c call) client() (*client.Client, error) {
	token, err := c.sentToken()
	if err != nil {
		return nil, err
	}
	cl, err := client.New(c.server, token, c.insecure)
	if err != nil {
		return nil, app.Usagef("%s", err)
	}
	return cl, nil
}

// sentToken is the token to send, empty for none.
func (c call) sentToken() (string, error) {
	if c.tokenFile != "" {
		token, err := readToken(c.tokenFile)
		if err != nil && c.from["token-file"] == FromFlag {
			return "", fmt.Errorf("--token-file: %w", err)
		}
		if err != nil {
			return "", fmt.Errorf("COUNTMILL_TOKEN_FILE: %w", err)
		}
		return token, nil
	}
	if c.given("token") && !tokenText.MatchString(c.token) {
		return "", app.Usagef("--token: is no token; `countmill token new` makes one")
	}
	return c.token, nil
}

// tokenText is any text that can follow Bearer; the server knows which are tokens.
var tokenText = regexp.MustCompile(`^[A-Za-z0-9._~+/-]{1,256}=*$`)

func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if !tokenText.MatchString(token) {
		return "", errors.New(path + " must hold a token alone, the first line that `countmill token new` prints")
	}
	return token, nil
}

// ask gets one answer of the server.
func (c call) ask(ctx context.Context, method, path string, body any) ([]byte, error) {
	cl, err := c.client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return cl.Send(ctx, method, path, nil, body)
}

// quoted is arguments as an error shows them.
func quoted(args []string) string {
	if len(args) == 0 {
		return "none"
	}
	return strings.Trim(fmt.Sprintf("%q", args), "[]")
}

// checkNames refuses names that the server would refuse.
func checkNames(names []string, most int) error {
	if len(names) == 0 {
		return app.Usagef("NAME is missing")
	}
	if len(names) > most {
		return app.Usagef("%d names are too many (limit: %d)", len(names), most)
	}
	for _, name := range names {
		if err := checkCounter(name); err != nil {
			return err
		}
	}
	return nil
}

func checkCounter(name string) error {
	if err := countmill.CheckCounter(name); err != nil {
		return app.Usagef("NAME %q: %s", name, err)
	}
	return nil
}

// oneName is the NAME of a command that takes one.
func (c call) oneName() (string, error) {
	if len(c.args) > 1 {
		return "", app.Usagef("too many arguments: %q (quote a name that holds spaces)", c.args[1])
	}
	return strings.Join(c.args, ""), checkNames(c.args, 1)
}

// onePrefix is the PREFIX of a command that takes one or none.
func (c call) onePrefix() (string, error) {
	if len(c.args) > 1 {
		return "", app.Usagef("too many arguments: %q (quote a prefix that holds spaces)", c.args[1])
	}
	return strings.Join(c.args, ""), nil
}
