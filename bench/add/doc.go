// Package add has Go benchmarks of a single call that adds one to a counter in this process. They
// compare publisher.Add and Counter.Add with the metrics libraries that people use for it. It has no
// code of its own.
//
// The promises differ: countmill's increment is sent to a store. The others are read by a scraper of
// the process, and are lost with the process.
package add
