package datastore

import (
	"fmt"
	"testing"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"

	"github.com/countmill/countmill/store"
)

// Anybody can find a name that begins with another one and has the same hash. Its rows are among those of the other
// counter, and hide none of them.
func TestRowsAmongThoseOfAnotherCounter(t *testing.T) {
	t.Parallel()
	s := openStore(t, fresh(t))
	const others = 7
	c, places := new(store.Commit), []store.JournalPlace{}
	for i := range 3 {
		place := store.JournalPlace{Key: store.NewJournalKey(time.Now().Add(-store.JournalSettle-time.Hour), uint64(i))}
		c.Rows = append(c.Rows, store.JournalRow{Counter: "a", Place: place, ExpireAt: time.Now().Add(time.Hour), Data: []byte("row")})
		places = append(places, place)
	}
	mutations := s.addJournal(nil, c)
	for i := range others {
		name := rowsOf("a") + fmt.Sprintf("0001:%d:", i) + places[0].String()
		mutations = append(mutations, s.insert(ref{kindRow, name}, map[string]*pb.Value{
			"place": indexedText(name), "data": blob([]byte("row of another counter")), "expire_at": instant(c.Rows[0].ExpireAt),
		}))
	}
	if err := s.commitLots(t.Context(), mutations); err != nil {
		t.Fatal(err)
	}
	for limit := 1; limit <= others+4; limit++ {
		var got []store.JournalPlace
		for q := (store.JournalQuery{Limit: limit}); ; q.From = got[len(got)-1].Next() {
			page, err := s.JournalRows(t.Context(), "a", q)
			if err != nil || len(page.Rows) == 0 || len(page.Rows) > limit {
				t.Fatalf("limit %d: a page of %d rows after %d of 3, %v", limit, len(page.Rows), len(got), err)
			}
			for i := range page.Rows {
				got = append(got, page.Rows[i].Place)
			}
			if !page.More {
				break
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(places) {
			t.Errorf("limit %d: rows at %v, want %v", limit, got, places)
		}
	}
}
