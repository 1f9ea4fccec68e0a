package reader

// SmallBoards makes boards of so many candidates.
func (c Config) SmallBoards(size int) Config {
	c.boardSize = size
	return c
}
