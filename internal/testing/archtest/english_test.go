package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// plainFolders are the folders whose texts TestPlainEnglish checks, each with all folders below it. Add a
// folder here when its texts are rewritten.
var plainFolders = []string{
	"admin",
	"aggregator",
	"backend",
	"bench",
	"client",
	"command",
	"deploy",
	"embedded",
	"examples",
	"internal/auth",
	"internal/httpserver",
	"internal/app",
	"internal/clock",
	"internal/api",
	"internal/webui",
	"internal/shards",
	"internal/systemd",
	"internal/testing/archtest",
	"internal/testing/browser",
	"internal/testing/bugtest",
	"internal/testing/e2e",
	"internal/testing/emulator",
	"internal/testing/faultproxy",
	"internal/testing/powertest",
	"internal/testing/sim",
	"internal/transfer",
	"internal/units",
	"publisher",
	"reader",
	"sequence",
	"store",
	"tools",
	"wire",
}

// plainLimit is the most hits in 1,000 words. Projects with good English have 0 to 0.7. The limit is higher
// because the patterns also match some correct sentences.
const plainLimit = 2

// A phrase is a pattern that makes a sentence hard to read. before and after match the text around a hit
// that is correct English.
type phrase struct {
	name                   string
	pattern, before, after *regexp.Regexp
}

var phrases = []phrase{
	{"free relative", words(`(what|who|whoever|whatever)\s+(is|are|was|were|has|have|had|must|may|can|could|will|would|it|they|a|an|` +
		`nobody|somebody|came|comes|makes|wants|takes|gets|does|did|needs|reads|writes|sends|asks|waits|counts|cannot|no|all|` +
		`that|this|the|each|one)`), nil, regexp.MustCompile(`^[^.]*\?`)}, // not in a question
	{"those that", words(`((those|one|that|such)\s+(that|who|which)|(those|one|that)\s+as)\s+\w+`), nil, nil},
	{"stands, lies, tells", words(`stands?|stood|lies|lay|tells?|told`), nil, regexp.MustCompile(`^\s+(alone|for|us|you)\b`)},
	{"dialect", words(`held against|holds? against|is away|was away|mend(ed|s|ing)?|as well as they are|besides[.,]|no \w+ any more`), nil, nil},
	{"is no", words(`is no \w+`), regexp.MustCompile(`(?i)\bthere $`), nil},
}

// words compiles a pattern that matches whole words only.
func words(pattern string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(` + pattern + `)(?:\W|$)`)
}

// hits returns the phrases in a text, each with its name.
func hits(text string) []string {
	var found []string
	for _, p := range phrases {
		for _, at := range p.pattern.FindAllStringSubmatchIndex(text, -1) {
			from, to := at[2], at[3]
			before := p.before != nil && p.before.MatchString(text[:from])
			after := p.after != nil && p.after.MatchString(text[to:])
			if !before && !after {
				found = append(found, fmt.Sprintf("%q (%s)", text[from:to], p.name))
			}
		}
	}
	return found
}

// A passage is a text that people read: a comment, or a message.
type passage struct {
	at   token.Pos
	text string
}

// passages returns the comments of a file. It also returns its strings of two words or more, except in
// tests: these are errors, log messages, and help.
func passages(s source) []passage {
	var all []passage
	for _, group := range s.file.Comments {
		all = append(all, passage{group.Pos(), group.Text()})
	}
	if s.isTest() {
		return all
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		expr, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		text, isText := joined(expr)
		if isText && len(strings.Fields(text)) >= 2 {
			all = append(all, passage{n.Pos(), text})
		}
		return !isText
	})
	return all
}

// joined returns the text of a string, or of several with + between them and maybe with values.
func joined(expr ast.Expr) (text string, isText bool) {
	switch e := expr.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			x, isX := joined(e.X)
			y, isY := joined(e.Y)
			return x + y, isX || isY
		}
	}
	return "", false
}

// A folder is the result for one folder.
type folder struct {
	words int
	hits  []string
}

func (f *folder) add(s source) {
	for _, p := range passages(s) {
		f.words += len(strings.Fields(p.text))
		for _, hit := range hits(p.text) {
			f.hits = append(f.hits, s.at(p.at)+": "+hit)
		}
	}
}

// err allows a single hit in a small folder.
func (f *folder) err() error {
	if n := len(f.hits); n > 1 && n*1000 > plainLimit*f.words {
		return fmt.Errorf("%d hits in %d words (limit: %d in 1,000). Name the actor, the verb and the object, and use if, when or because:\n%s",
			n, f.words, plainLimit, strings.Join(f.hits, "\n"))
	}
	return nil
}

// Comments, errors, log messages and help use plain English: "the message that the bus sent" instead of a
// free relative, and verbs in their ordinary meaning.
func TestPlainEnglish(t *testing.T) {
	t.Parallel()
	all := sources(t)
	for _, name := range plainFolders {
		var f folder
		for _, s := range all {
			if strings.HasPrefix(s.name, name+"/") {
				f.add(s)
			}
		}
		if f.words == 0 {
			t.Errorf("%s has no Go files: correct plainFolders", name)
		}
		if err := f.err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDialectIsFound(t *testing.T) {
	t.Parallel()
	const good = "// f sends the message again if its answer was lost.\nfunc f() {}\n"
	for text, want := range map[string]int{
		"// f sends what is held, and tells whoever\n// asks.\n":                        2 + 1,
		"// f is for those that wait, and one who does not.\n":                          3,
		"// f is away until it is mended.\n":                                            2,
		"// f is no error. The answer stands in the log.\n":                             2,
		"// There is no error. Such as it may, f stands for g.\n":                       0,
		"// Who is it? What does f do?\n":                                               0,
		"var e = errors.New(\"the disk is away, whatever it says\")\n":                  2,
		"var e = fmt.Errorf(\"counter %s \" + \"stands there, whoever has it\", c)\n":   1 + 1,
		"func g() { log.Warn(\"what was lost is \" + name + \" now\") }\n":              1,
		"var o = []option{{\"tokens\", \"FILE\", Up, \"A file of those who call.\"}}\n": 1,
		"var s = \"tells\"\n": 0,
		"// The tool reports every error, or one as large.\n": 1,
		"//go:generate what is this\n":                        0,
	} {
		s, err := parse("a.go", "package a\n\n"+text+good)
		if err != nil {
			t.Fatal(err)
		}
		var f folder
		f.add(s)
		if len(f.hits) != want {
			t.Errorf("%q: got hits %q, want %d", text, f.hits, want)
		}
		if wantErr := want > 1; (f.err() != nil) != wantErr {
			t.Errorf("%q: got error %v, want one: %t", text, f.err(), wantErr)
		}
	}
}
