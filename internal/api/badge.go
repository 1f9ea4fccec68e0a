package api

import (
	"fmt"
	"html"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/reader"
)

const (
	// badgeStaleness is how old the total of a badge may be, and how long others may keep a badge.
	badgeStaleness = 10 * time.Second
	// badgeLabel is the most letters of a label: a badge is a line in a page.
	badgeLabel = 40
)

// badge answers /badge/NAME.svg and /badge/NAME.json with the counter's total.
func (a *API) badge(c call) error {
	name, form, public, err := a.badgeOf(c)
	if err != nil {
		return err
	}
	give, err := a.pools.take(badges, c.caller().Name, 1)
	if err != nil {
		return err
	}
	defer give()
	ts, err := a.services.Reader.TotalsSince(c.ctx, []string{name}, badgeStaleness, time.Time{})
	if err != nil {
		return err
	}
	label := shorten(c.params.Get("label"))
	if !c.params.Has("label") {
		label = shorten(name)
	}
	keepBadge(c.w.Header(), public)
	a.drawBadge(c.w, form, label, &ts[0])
	return nil
}

// keepBadge lets others keep a badge for a moment: everybody, or only the browser of the caller.
func keepBadge(header http.Header, public bool) {
	who := "public"
	if !public {
		who = "private"
		header.Add("Vary", "Authorization")
	}
	header.Set("Cache-Control", who+", max-age="+strconv.Itoa(int(badgeStaleness.Seconds())))
}

// badgeOf returns the counter and the form that the path names, and whether everybody may see the badge. A counter that the caller
// may not see has no badge, whether it exists or not.
func (a *API) badgeOf(c call) (name, form string, public bool, err error) {
	name, form = c.name(), ".svg"
	if !strings.HasSuffix(name, form) {
		form = ".json"
	}
	name, ok := strings.CutSuffix(name, form)
	if !ok {
		return "", "", false, noBadge("a badge's path ends in .svg or .json")
	}
	known := c.caller().Name != "" && c.caller().Has(auth.Read) && c.caller().Check(name) == nil
	public = a.services.Public == nil || a.services.Public(name)
	if !known && !public {
		return "", "", false, noBadge("no public badge has this name; `countmill share PREFIX --public` makes those of a prefix public")
	}
	return name, form, public, nil
}

func noBadge(detail string) error {
	return httpserver.NewProblem(http.StatusNotFound, "not-found", "not found", detail)
}

func (a *API) drawBadge(w http.ResponseWriter, form, label string, t *reader.Total) {
	message := thousands(t.Total)
	header := w.Header()
	header.Set("Content-Security-Policy", "default-src 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	var body []byte
	if form == ".json" {
		header.Set("Content-Type", "application/json")
		body = httpserver.AppendJSON(nil, client.Badge{SchemaVersion: 1, Label: label, Message: message, Color: badgeColor, Counter: t.Counter, Total: t.Total, AsOf: t.AsOf})
	} else {
		header.Set("Content-Type", "image/svg+xml")
		body = []byte(svgBadge(label, message))
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // an error means that the client is gone
}

// shorten cuts a label at badgeLabel letters.
func shorten(label string) string {
	if utf8.RuneCountInString(label) <= badgeLabel {
		return label
	}
	return string([]rune(label)[:badgeLabel-1]) + "…"
}

// thousands writes a number with commas.
func thousands(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return sign + digits
}

const badgeColor = "#0f6b66"

// svgBadge draws a label and a message side by side. Every program measures text differently:
// textLength makes it as wide as its box.
func svgBadge(label, message string) string {
	left, right := textWidth(label), textWidth(message)
	wide := left + right + 24
	l, m := html.EscapeString(label), html.EscapeString(message)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="20" role="img" aria-label="%[5]s: %[6]s">`+
		`<title>%[5]s: %[6]s</title><clipPath id="r"><rect width="%[1]d" height="20" rx="3"/></clipPath>`+
		`<g clip-path="url(#r)"><rect width="%[2]d" height="20" fill="#3f433d"/><rect x="%[2]d" width="%[3]d" height="20" fill="%[4]s"/></g>`+
		`<g fill="#fff" font-family="Verdana,DejaVu Sans,Geneva,sans-serif" font-size="11">`+
		`<text x="6" y="14" textLength="%[7]d" xml:space="preserve">%[5]s</text><text x="%[8]d" y="14" textLength="%[9]d">%[6]s</text></g></svg>`+"\n",
		wide, left+12, right+12, badgeColor, l, m, left, left+18, right)
}

// textWidth estimates the width of a text in pixels, in Verdana at 11 pixels.
func textWidth(text string) int {
	width := 0
	for _, r := range text {
		switch {
		case strings.ContainsRune("ijlIt.,:;'|!()[] /", r):
			width += 45
		case r >= 0x1100: // most are as wide as high
			width += 110
		default:
			width += 70
		}
	}
	return (width + 9) / 10
}
