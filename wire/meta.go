package wire

// The metadata names that a bus backend sets on a message that countmill did not publish.
const (
	// MetaBrokerID is the broker's message id, the same at every delivery.
	MetaBrokerID = "countmill_broker_id"
	// MetaPublished is the broker's publish time, RFC 3339 with fractions.
	MetaPublished = "countmill_published"
	// MetaTopic is the broker's name of the topic. Default: Config.Topic.
	MetaTopic = "countmill_topic"
)

// The metadata names under which a bus backend hands over a broker's words on a message
// that it gave up delivering.
const (
	// MetaGivenUp says in words which subscription that was, and after how many tries.
	MetaGivenUp = "countmill_given_up"
	// MetaFirstPublished is when the message was published before it was moved aside, RFC
	// 3339 with fractions. MetaPublished and MetaBrokerID are those of the copy.
	MetaFirstPublished = "countmill_first_published"
)
