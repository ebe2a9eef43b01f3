// Package console does what the buttons of the pages ask for, under the ref whose page it is. Package web
// has checked by then that the request is from its own page, with the page's token (guard.go, token.go).
//
// An action is one call, the same as a command's, on the same objects, and refused with the same words.
// Nothing is decided here: what a page has no button for is refused by the server as it would be anywhere
// else.
//
// An action has an id (a ULID) that the page makes when its dialog opens, and a new ref's secret, if it makes
// one, is the page's too. An op is sent as the only one of an outbox that both name, so an action that is
// repeated, because its answer was lost or it was clicked twice, is answered with its first outcome; a share or
// rotation of the same secret changes nothing, and a fork's session is named by the id.
package console
