package wire_test

import (
	"crypto/rand"
	"fmt"
	"log"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// A batch is the content of one message. Decode computes the ids of parts that have a name.
func ExampleBatch() {
	part := wire.CutIdentified(countmill.Increment{Counter: "orders", Delta: 3, ID: "order-7"})
	payload := wire.Append(nil, &wire.Batch{Time: noon, Parts: []wire.Part{part}})

	batch, err := wire.Decode(payload)
	if err != nil {
		log.Fatal(err)
	}
	p := batch.Parts[0]
	fmt.Println(p.Kind, p.Entries, p.ID == wire.IncrementID("orders", "order-7"))
	// Output: identified [{orders 3}] true
}

// A request with a key is cut in the same way by every version, so a repeat has the same ids.
func ExampleCutRequest() {
	incs := []countmill.Increment{{Counter: "page:/", Delta: 1}, {Counter: "page:/", Delta: 1}, {Counter: "orders", Delta: 1, ID: "order-7"}}
	parts, err := wire.CutRequest("shop", "checkout-1017", incs)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range parts {
		fmt.Println(p.Kind, p.Entries)
	}
	// Output:
	// head [{page:/ 2}]
	// identified follower [{orders 1}]
}

// Anonymous increments are cut into parts of at most 24 counters, with random ids.
func ExampleCutAnonymous() {
	var entries []wire.Entry
	for i := range 50 {
		entries = append(entries, wire.Entry{Counter: fmt.Sprint("page:", i), Delta: 1})
	}
	wire.SortEntries(entries)
	parts := wire.CutAnonymous(rand.Reader, entries)

	messages, _ := wire.Pack(noon, wire.NewFlushID(rand.Reader), parts, wire.MaxBatch)
	fmt.Println(len(parts), "parts in", len(messages), "message")
	// Output: 3 parts in 1 message
}

// DecodeJSON reads the JSON of requests strictly: an error names the place and the field.
func ExampleDecodeJSON() {
	body := []byte(`{"counter":"page:/home"}
{"counter":"orders","delta":1.5}`)
	_, err := wire.DecodeJSON(body, wire.NDJSON, noon, countmill.DefaultDedupWindow)
	fmt.Println(err)
	// Output: line 2: delta is not an integer literal (limit: an integer literal from -9007199254740991 to 9007199254740991, not 0)
}
