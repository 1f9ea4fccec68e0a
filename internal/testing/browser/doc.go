// Package browser has the tests of countmill's page in headless Chromium. It is a module of its
// own, so that nobody who uses countmill gets the library that drives the browser.
//
// The tests build cmd/countmill and run it. Without Chromium they skip, or fail if
// COUNTMILL_TEST_REQUIRE has the word "browser".
package browser
