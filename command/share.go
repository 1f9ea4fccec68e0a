package command

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/auth"
)

var shareCommand = cli.Command{
	Path:  "share",
	Group: "set",
	Args:  "PREFIX",
	Short: "make a read-only link to the page, for the counters under a prefix",
	Long: `Makes a token that may read the counters whose names begin with PREFIX, and nothing else, without
asking a server. It prints a link to the page of --server that carries the token, and the line for
the file that the server reads (--tokens FILE). With --file it appends the line there.

  countmill share page: --expires 30d --server https://count.example.com --file tokens
  countmill share page: --public --file tokens

The token is behind the # of the link, which browsers send to no server. Everybody who has the link
may read until it expires, or until "countmill token remove" removes it.

Put one counter into another page with a frame of .../frame.html#token=TOKEN&counter=NAME. --public
also gives each counter under PREFIX a badge without a token: /badge/NAME.svg.
`,
	New: func() cli.Verb { return new(shareVerb) },
}

// shareFor is how long a link works unless --expires says it.
const shareFor = "30d"

type shareVerb struct {
	call
	expires, file, name, server string
	public                      bool
}

func (c *shareVerb) Flags() []cli.Flag {
	c.server = "http://" + app.DefaultListen
	return []cli.Flag{
		expiresFlag(&c.expires),
		addToFlag(&c.file),
		cli.New("name", "NAME", cli.Any(&c.name), "Name of the link's token, in the file and in logs.").Default("share- and the prefix"),
		cli.Switch("public", &c.public, "Let everybody see badges of the counters under PREFIX, without a token."),
		cli.New("server", "URL", cli.Any(&c.server), "The address of the page in the link.").FromEnv(),
	}
}

func (c *shareVerb) Run(context.Context) error {
	if len(c.args) != 1 || c.args[0] == "" {
		return cli.Usagef("name one PREFIX: countmill share page:")
	}
	prefix := c.args[0]
	c.warnStars(prefix)
	base, err := url.Parse(c.server)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return cli.Usagef("--server: must be the address of the page, such as https://count.example.com, got %q", c.server)
	}
	expires := c.expires
	if expires == "" {
		expires = shareFor
	}
	token := auth.Token{Name: c.name, Scopes: []auth.Scope{auth.Read}, Prefixes: []string{prefix}, Public: c.public}
	if token.Name == "" {
		token.Name = shareName(prefix)
	}
	if token.Expires, err = parseExpiry(expires, time.Now()); err != nil {
		return err
	}
	secret, token, err := auth.New(token)
	if err != nil {
		return cli.Usagef("%s", ofShare.Replace(err.Error()))
	}
	if c.file != "" {
		if err := auth.Append(c.file, token); err != nil {
			return err
		}
	}
	fmt.Fprintln(c.stdout, shareLink(base, secret))
	if c.file == "" {
		_, err = fmt.Fprintln(c.stdout, token.Line())
	}
	return err
}

// ofShare turns the fields of the file into the words of this command.
var ofShare = strings.NewReplacer("name:", "--name:", "prefixes: number 1", "PREFIX:")

// shareLink is the page below base, with the token where no server gets it.
func shareLink(base *url.URL, secret string) string {
	return strings.TrimSuffix(base.Scheme+"://"+base.Host+base.EscapedPath(), "/") + "/#" + url.Values{"token": {secret}}.Encode()
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// shareName makes a token's name of a prefix: "share-page" of "page:".
func shareName(prefix string) string {
	plain := strings.Trim(notInName.ReplaceAllString(prefix, "-"), "-")
	return strings.TrimSuffix("share-"+plain[:min(len(plain), 50)], "-")
}
