package session

// What a ref shows, for the tests of it.
var VisibleEvents = visibleEvents
