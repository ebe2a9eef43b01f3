// Package palette is the style of highlighted code: the kinds of tokens with a style, their
// classes, and their colours on light and dark backgrounds.
package palette

import (
	"fmt"
	"strings"

	"github.com/alecthomas/chroma/v2"
)

// kinds are the kinds of tokens styled differently from plain code. A token takes the nearest
// kind above it.
var kinds = []chroma.TokenType{
	chroma.Comment, chroma.Keyword, chroma.KeywordType, chroma.LiteralString, chroma.LiteralStringEscape, chroma.LiteralNumber,
	chroma.NameFunction, chroma.NameClass, chroma.NameBuiltin, chroma.NameTag, chroma.NameAttribute, chroma.NameVariable, chroma.NameConstant, chroma.NameDecorator,
	chroma.Operator, chroma.GenericInserted, chroma.GenericDeleted, chroma.GenericHeading, chroma.GenericSubheading,
}

// The colours keep a contrast of 4.5 to 1 with the background of code blocks.
var (
	light = chroma.MustNewStyle("mooring-light", chroma.StyleEntries{
		chroma.Comment: "italic #5e6a70", chroma.Keyword: "#8a2a6b", chroma.KeywordType: "#0a6a72", chroma.LiteralString: "#2c6636", chroma.LiteralStringEscape: "#85560a",
		chroma.LiteralNumber: "#85560a", chroma.NameFunction: "#1d4f91", chroma.NameClass: "#0a6a72", chroma.NameBuiltin: "#0a6a72", chroma.NameTag: "#8a2a6b",
		chroma.NameAttribute: "#1d4f91", chroma.NameVariable: "#7a3b12", chroma.NameConstant: "#7a3b12", chroma.NameDecorator: "#85560a", chroma.Operator: "#55626a",
		chroma.GenericInserted: "#1d6b38", chroma.GenericDeleted: "#a8271c", chroma.GenericHeading: "bold #1b2529", chroma.GenericSubheading: "#1d4f91",
	})
	dark = chroma.MustNewStyle("mooring-dark", chroma.StyleEntries{
		chroma.Comment: "italic #8b9ba3", chroma.Keyword: "#e6a3d0", chroma.KeywordType: "#62cdd0", chroma.LiteralString: "#a3d6a0", chroma.LiteralStringEscape: "#e9bd6b",
		chroma.LiteralNumber: "#e9bd6b", chroma.NameFunction: "#9cc4f5", chroma.NameClass: "#62cdd0", chroma.NameBuiltin: "#62cdd0", chroma.NameTag: "#e6a3d0",
		chroma.NameAttribute: "#9cc4f5", chroma.NameVariable: "#f0b48c", chroma.NameConstant: "#f0b48c", chroma.NameDecorator: "#e9bd6b", chroma.Operator: "#9fb0b8",
		chroma.GenericInserted: "#8fd6a4", chroma.GenericDeleted: "#ff9d90", chroma.GenericHeading: "bold #e4e9ea", chroma.GenericSubheading: "#9cc4f5",
	})
)

var classes = func() map[chroma.TokenType]string {
	m := map[chroma.TokenType]string{}
	for _, k := range kinds {
		m[k] = chroma.StandardTypes[k]
	}
	return m
}()

// Class returns the class of a kind of token; "" if it is styled like plain code.
func Class(t chroma.TokenType) string {
	for ; t > 0; t = t.Parent() {
		if class, ok := classes[t]; ok {
			return class
		}
	}
	return ""
}

// CSS returns the style sheet of all classes, below the class code.
func CSS() string {
	var b strings.Builder
	for _, k := range kinds {
		l, d := light.Get(k), dark.Get(k)
		fmt.Fprintf(&b, ".code .%s { color: light-dark(%s, %s);", classes[k], l.Colour, d.Colour)
		if l.Italic == chroma.Yes {
			b.WriteString(" font-style: italic;")
		}
		if l.Bold == chroma.Yes {
			b.WriteString(" font-weight: 600;")
		}
		b.WriteString(" }\n")
	}
	return b.String()
}
