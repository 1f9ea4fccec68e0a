// Package coverage is a test. It runs the tests of the roles, and compares the statements that none of
// them covers with a list, explained.txt.
package coverage

import (
	"bufio"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// module begins every file name in a profile.
const module = "github.com/countmill/countmill/"

// A block is a sequence of statements, as the coverage tool counts them.
type block struct {
	file       string // relative to the module: "aggregator/plan.go"
	from, to   place
	statements int
	covered    bool // by any test
	errorText  bool // it only makes or returns an error

	dir, fn, code string
	nth, of       int // of the blocks of the same function with the same code, from 1
}

type place struct{ line, column int }

func (a place) compare(b place) int {
	return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column))
}

// name is the block's name in a list.
func (b *block) name() string {
	in := strings.TrimSpace(b.dir + " " + b.fn)
	if b.of > 1 {
		in += fmt.Sprintf("#%d", b.nth)
	}
	return in + ": " + b.code
}

// readProfile merges the profiles of several packages' tests, and sorts them.
func readProfile(r io.Reader) ([]*block, error) {
	merged := map[string]*block{}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "mode:") {
			continue
		}
		where, counts, _ := strings.Cut(line, " ")
		b, times := &block{}, 0
		if _, err := fmt.Sscan(counts, &b.statements, &times); err != nil {
			return nil, fmt.Errorf("profile: %q: %w", line, err)
		}
		if merged[where] == nil {
			file, span, _ := strings.Cut(where, ":")
			if _, err := fmt.Sscanf(span, "%d.%d,%d.%d", &b.from.line, &b.from.column, &b.to.line, &b.to.column); err != nil {
				return nil, fmt.Errorf("profile: %q: %w", line, err)
			}
			b.file = strings.TrimPrefix(file, module)
			merged[where] = b
		}
		merged[where].covered = merged[where].covered || times > 0
	}
	var blocks []*block
	for _, b := range merged {
		if b.statements > 0 {
			blocks = append(blocks, b)
		}
	}
	slices.SortFunc(blocks, func(a, b *block) int {
		return cmp.Or(cmp.Compare(a.file, b.file), a.from.compare(b.from))
	})
	return blocks, nil
}

// describe finds the function and the code of each block in the sources.
func describe(root string, blocks []*block) error {
	files := map[string]*source{}
	same := map[string][]*block{}
	for _, b := range blocks {
		if files[b.file] == nil {
			s, err := parse(filepath.Join(root, b.file))
			if err != nil {
				return err
			}
			files[b.file] = s
		}
		files[b.file].describe(b)
		same[b.name()] = append(same[b.name()], b)
	}
	for _, all := range same {
		for i, b := range all {
			b.nth, b.of = i+1, len(all)
		}
	}
	return nil
}

type source struct {
	set  *token.FileSet
	file *ast.File
	text []byte // without comments
}

func parse(name string) (*source, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	s := &source{set: token.NewFileSet(), text: text}
	if s.file, err = parser.ParseFile(s.set, name, text, parser.ParseComments|parser.SkipObjectResolution); err != nil {
		return nil, err
	}
	for _, c := range s.file.Comments {
		for i := s.offset(c.Pos()); i < s.offset(c.End()); i++ {
			if s.text[i] != '\n' {
				s.text[i] = ' '
			}
		}
	}
	return s, nil
}

func (s *source) offset(p token.Pos) int { return s.set.Position(p).Offset }

func (s *source) pos(p place) token.Pos {
	return s.set.File(s.file.FileStart).LineStart(p.line) + token.Pos(p.column-1)
}

// mostCode is the number of bytes of a block's code in its name.
const mostCode = 120

// describe takes a block's code from the beginning of its line: a body includes its condition.
func (s *source) describe(b *block) {
	from, to := s.pos(b.from), s.pos(b.to)
	code := s.text[s.offset(s.pos(place{b.from.line, 1})):s.offset(to)]
	b.code = strings.Join(strings.Fields(string(code)), " ")
	b.code = strings.TrimSpace(strings.ToValidUTF8(b.code[:min(len(b.code), mostCode)], "")) // as readExplained does
	b.dir = path.Dir(b.file)
	for _, d := range s.file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Pos() <= from && to <= fn.End() {
			b.fn = funcName(fn)
			b.errorText = onlyErrors(fn, from, to)
		}
	}
}

// funcName returns a function's name, with its type for a method, as in Planner.add.
func funcName(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) != 1 {
		return fn.Name.Name
	}
	recv, _, _ := strings.Cut(strings.TrimPrefix(types.ExprString(fn.Recv.List[0].Type), "*"), "[")
	return recv + "." + fn.Name.Name
}
