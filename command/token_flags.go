package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	"github.com/countmill/countmill/internal/app"
)

// tokenFlags say which token a verb sends.
type tokenFlags struct {
	token, file string
	insecure    bool
}

const tokenHelp = `  --token TOKEN
      The token to send, where the server asks for one. Others on this machine see
      it in the list of processes: rather use the variable or the file.
      [COUNTMILL_TOKEN]
  --token-file FILE
      A file that holds the token alone. [COUNTMILL_TOKEN_FILE]
  --insecure
      Send the token over plain http to other machines too.
`

func (t *tokenFlags) bind(set *pflag.FlagSet) {
	set.StringVar(&t.token, "token", "", "")
	set.StringVar(&t.file, "token-file", "", "")
	set.BoolVar(&t.insecure, "insecure", false, "")
}

// readEnv reads the variables, unless a flag says which token it is, and then the file.
func (t *tokenFlags) readEnv(set *pflag.FlagSet, c call) error {
	from := "--token-file"
	byFlag := set.Changed("token") || set.Changed("token-file")
	if set.Changed("token") && set.Changed("token-file") {
		return app.Usagef("--token and --token-file: give one of them")
	}
	if !byFlag {
		from = "COUNTMILL_TOKEN_FILE"
		t.token, _ = c.lookup("COUNTMILL_TOKEN")
		t.file, _ = c.lookup("COUNTMILL_TOKEN_FILE")
		if t.token != "" && t.file != "" {
			return app.Usagef("COUNTMILL_TOKEN and COUNTMILL_TOKEN_FILE: set one of them")
		}
	}
	if t.file != "" {
		text, err := readToken(t.file)
		if err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
		t.token = text
	}
	if (set.Changed("token") || t.token != "") && !tokenText.MatchString(t.token) {
		return app.Usagef("--token: is no token; `countmill token new` makes one")
	}
	return nil
}

// tokenText is what may stand behind Bearer; the server knows which are tokens.
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

// client is for the server and the token that the flags name.
func (v *verbFlags) client() (*client, error) {
	return newClient(v.server, v.token.token, v.token.insecure)
}
