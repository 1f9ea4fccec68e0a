package reader_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
)

// pages lists everything and returns the names on each page.
func pages(t *testing.T, r *reader.Reader, prefix string, limit int) (pages []string) {
	t.Helper()
	for after := ""; ; {
		page, err := r.List(t.Context(), prefix, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, total := range page.Totals {
			names = append(names, total.Counter)
		}
		pages = append(pages, strings.Join(append(names, page.Overflowed...), " "))
		if after = page.Next; after == "" {
			return pages
		}
	}
}

func TestListPages(t *testing.T) {
	t.Parallel()
	st := &fakeStore{}
	for _, name := range []string{"b/1", "B", "b/10", "b/2", "é", "a//b", "b"} {
		st.put(name, 1, 2, 3)
	}
	r := newReader(t, st, nil, reader.Config{})
	for _, tc := range []struct {
		prefix string
		limit  int
		want   []string
	}{
		{"", 1000, []string{"B a//b b b/1 b/10 b/2 é"}},
		{"b/", 2, []string{"b/1 b/10", "b/2"}},
		{"b/", 3, []string{"b/1 b/10 b/2"}},
		{"", 3, []string{"B a//b b", "b/1 b/10 b/2", "é"}},
		{"none", 3, []string{""}},
	} {
		if got := pages(t, r, tc.prefix, tc.limit); !slices.Equal(got, tc.want) {
			t.Errorf("pages of %d of %q are %q, want %q", tc.limit, tc.prefix, got, tc.want)
		}
	}
}

func TestListPagesAreLimitedByShards(t *testing.T) {
	t.Parallel()
	st := &fakeStore{}
	for name, shards := range map[string]int{"a": 999, "b": 999, "c": 999, "d": 999, "e": 999, "f": 5, "g": 1} {
		st.putValues(name, make([]store.Value, shards)...)
	}
	r := newReader(t, st, nil, reader.Config{})
	if got, want := pages(t, r, "", 100), []string{"a b c d e f", "g"}; !slices.Equal(got, want) {
		t.Errorf("pages are %q, want %q", got, want)
	}
}

func TestListRefuses(t *testing.T) {
	t.Parallel()
	r := newReader(t, &fakeStore{}, nil, reader.Config{})
	for _, tc := range []struct {
		prefix, after string
		limit         int
		field         string
	}{
		{"", "", 0, "limit"}, {"", "", 1001, "limit"}, {"\xff", "", 1, "prefix"},
		{strings.Repeat("x", 501), "", 1, "prefix"}, {"", "\xff", 1, "after"},
	} {
		_, err := r.List(t.Context(), tc.prefix, tc.after, tc.limit)
		var field *countmill.FieldError
		if !errors.As(err, &field) || field.Field != tc.field {
			t.Errorf("List(%.5q, %q, %d): %v, want a FieldError of %s", tc.prefix, tc.after, tc.limit, err, tc.field)
		}
	}
}
