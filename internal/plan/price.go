package plan

// Prices are in dollars. Free tiers are ignored.
type Prices struct {
	Reads, Writes, Deletes float64 // of 100,000 entities
	Storage                float64 // of a GiB for a month
	PubSub                 float64 // of a TiB published or delivered
	AsOf                   string  // source and date
}

// DefaultPrices are the prices of a database in nam5 (United States, two regions and a witness;
// single regions there cost half), from an undated copy of Google's page. Pub/Sub's are from a
// copy of 2026-09-20. docs/evidence/unverified.md explains how to check them.
func DefaultPrices() Prices {
	return Prices{
		Reads: 0.06, Writes: 0.18, Deletes: 0.02, Storage: 0.18, PubSub: 40,
		AsOf: "Pub/Sub 2026-09-20, Datastore in nam5 from an undated copy; check them",
	}
}

// A Price is one of Prices, with its flag.
type Price struct {
	Flag, About string
	Dollars     *float64
}

// Each returns all prices, to read and to set them.
func (p *Prices) Each() []Price {
	return []Price{
		{"price-read", "Dollars for reading 100,000 entities.", &p.Reads},
		{"price-write", "Dollars for writing 100,000 entities.", &p.Writes},
		{"price-delete", "Dollars for deleting 100,000 entities; a TTL policy's deletes cost the same.", &p.Deletes},
		{"price-storage", "Dollars for a GiB in the database for a month.", &p.Storage},
		{"price-pubsub", "Dollars for a TiB that Pub/Sub takes or delivers.", &p.PubSub},
	}
}

// A Bill is in dollars for a month of 30 days.
type Bill struct {
	PubSub  float64 `json:"pubsub"`
	Writes  float64 `json:"writes"`
	Reads   float64 `json:"reads"`
	Deletes float64 `json:"deletes"`
	Storage float64 `json:"storage"`
	Total   float64 `json:"total"`
}

const lot = 100_000 // entities that a price is of

// once is the price of work that is done once.
func (p Prices) once(read, written float64) float64 {
	return read/lot*p.Reads + written/lot*p.Writes
}

// bill is the price of a cost.
func (p Prices) bill(c Cost) Bill {
	const tib, gib = 1 << 40, 1 << 30
	b := Bill{
		PubSub:  c.PubSubBytes * secondsOfMonth / tib * p.PubSub,
		Writes:  c.EntitiesWritten * secondsOfMonth / lot * p.Writes,
		Reads:   c.EntitiesRead * secondsOfMonth / lot * p.Reads,
		Deletes: c.EntitiesDeleted * secondsOfMonth / lot * p.Deletes,
		Storage: c.StoredBytes / gib * p.Storage,
	}
	b.Total = b.PubSub + b.Writes + b.Reads + b.Deletes + b.Storage
	return b
}

// pubSubBytes is the number of billed bytes. Pub/Sub bills each message's body, attributes, id,
// and 20 bytes for the time, and at least 1,000 bytes for each call. A publisher sends one
// message a call. Delivery is assumed to be one message a call too, which is the most expensive
// case.
func pubSubBytes(messages, bytes float64) float64 {
	const (
		attributes = len("_watermill_message_uuid") + 32
		id         = 17
	)
	each := bytes/messages + float64(attributes) + 20 + id
	return 2 * messages * max(each, 1000)
}

// Sizes of stored entities, by Datastore's page Storage Size Calculations. A string has its bytes
// and one more. A key has its kind, its name and 16. A property has its name and value, 8 for
// numbers and times. An entity has its key, its properties and 32. An entry of a built-in index
// has a key, its kind, the property and 32; each indexed property has two entries.
const markerBytes = float64(17 + 33 + 16 + // key
	12 + 8 + 5 + 8 + 10 + 8 + // fingerprint, fold, expire_at
	32)

func (l Load) recordBytes() float64 {
	return float64(17 + l.NameBytes + 1 + 16 + 7 + 8 + 8 + 8 + 32) // shards, created
}

// remainderBytes is of a group's remainder in one range of an index. Its key has the numbers of the index and the range.
func (l Load) remainderBytes() float64 {
	return float64(14 + len("1:16:") + l.NameBytes + 1 + 16 + 5 + 8 + 32)
}

func (l Load) shardBytes() float64 {
	key := 15 + 9 + l.NameBytes + 4 + 16 // hash, counter, number
	counter := 8 + l.NameBytes + 1
	numbers := 6 + 8 + 6 + 8 + 7 + 8 // count, tally, shards
	return float64(key + counter + numbers + 32 + 2*(key+15+counter+32))
}
