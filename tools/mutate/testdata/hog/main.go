// Command hog allocates until it is refused.
package main

func main() {
	var all [][]byte
	for {
		b := make([]byte, 16<<20)
		for i := range b {
			b[i] = 1
		}
		all = append(all, b)
	}
}
