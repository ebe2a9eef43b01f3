// Package jsontext reads and writes the JSON text of Cap'n Web's messages. Only package capnweb calls it; what an array or an
// object stands for is decided there. It touches nothing but its arguments, of which it keeps nothing, and its functions may be
// called from any goroutine.
//
//	value   nil, bool, float64, string, []any or map[string]any
//
// # Bounds
//
// A value nests as deep as the caller of Parse allows. What it takes in memory, many times its text at worst, DecodedBytes
// estimates from the text. Parsers are pooled, and keep up to 16,384 elements of room each.
package jsontext
