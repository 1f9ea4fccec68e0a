package archtest

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// curl returns a directory for the front of PATH. It is empty where there is a curl; else it holds a stand-in, which is this test program itself: on a
// machine that has only Go, the commands of documents are run all the same.
func curl(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := exec.LookPath("curl"); err == nil {
		return dir
	}
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(dir, "curl"))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Log("there is no curl here: a stand-in runs the commands of documents")
	return dir
}

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "curl" {
		if err := standIn(os.Args[1:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "curl stand-in:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// standIn understands the options of curl that documents use.
func standIn(args []string, stdin io.Reader, stdout io.Writer) error {
	method, url, header := http.MethodGet, "", http.Header{}
	var body io.Reader
	for i := 0; i < len(args); i++ {
		if args[i][0] != '-' {
			url = args[i]
			continue
		}
		if i+1 == len(args) {
			return fmt.Errorf("%s has no value", args[i])
		}
		value := args[i+1]
		switch args[i] {
		case "-d":
			method, body = http.MethodPost, strings.NewReader(value)
		case "-X":
			method = value
		case "--data-binary":
			if method, body = http.MethodPost, stdin; value != "@-" {
				return fmt.Errorf("--data-binary %s", value)
			}
		case "-H":
			name, text, _ := strings.Cut(value, ": ")
			header.Set(name, text)
		default:
			return fmt.Errorf("option %s", args[i])
		}
		i++
	}
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		return err
	}
	req.Header = header
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(stdout, res.Body)
	return err
}
