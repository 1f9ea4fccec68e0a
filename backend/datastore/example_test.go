package datastore_test

import (
	"fmt"

	"github.com/countmill/countmill/backend/datastore"
)

// A namespace keeps several countmills in one database apart.
func ExampleConfig() {
	fmt.Println(datastore.Config{Project: "shop", Namespace: "test"})
	// Output: datastore://shop?namespace=test
}
