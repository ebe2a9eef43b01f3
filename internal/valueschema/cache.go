package valueschema

import (
	"sync"

	"github.com/mooring-rpc/mooring/fault"
)

// Bounds of a cache.
const (
	cacheEntries = 256
	cacheWeight  = 64 << 20 // bytes, estimated
)

// Cache keeps compiled schemas by the SHA-256 of their texts: those used last, at most 256 of 64 MiB. The
// zero Cache is empty. Its methods can be called by several goroutines.
type Cache struct {
	mu     sync.Mutex
	slots  map[[32]byte]*slot
	weight int
	clock  uint64
}

type slot struct {
	schema *Schema
	used   uint64
}

// Find returns a compiled schema, nil if it is not in the cache.
func (c *Cache) Find(sum [32]byte) *Schema {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.slots[sum]
	if s == nil {
		return nil
	}
	c.clock++
	s.used = c.clock
	return s.schema
}

// Get is Find, and compiles the schema if it is not there; sum is its text's. Errors as Compile's, and
// are not kept.
func (c *Cache) Get(sum [32]byte, text []byte) (*Schema, *fault.Error) {
	if s := c.Find(sum); s != nil {
		return s, nil
	}
	s, err := Compile(text)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if there := c.slots[sum]; there != nil {
		return there.schema, nil
	}
	for len(c.slots) > 0 && (len(c.slots) >= cacheEntries || c.weight+s.weight > cacheWeight) {
		c.dropOldest()
	}
	if c.slots == nil {
		c.slots = map[[32]byte]*slot{}
	}
	c.clock++
	c.slots[sum] = &slot{s, c.clock}
	c.weight += s.weight
	return s, nil
}

func (c *Cache) dropOldest() {
	var oldest [32]byte
	first := ^uint64(0)
	for sum, s := range c.slots {
		if s.used < first {
			oldest, first = sum, s.used
		}
	}
	c.weight -= c.slots[oldest].schema.weight
	delete(c.slots, oldest)
}
