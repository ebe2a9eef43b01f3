// Package refs decides which stored ref is used for a batch, and how the answers of servers change
// what is stored of one. The outbox is the only place where the refs' secrets are stored.
//
// Packages outbox and sender ask a Resolver for the refs through which a batch is sent; package sqlstore
// reads and writes its Rows. It touches no database: a Resolver reads through the Source that it is given.
//
// The words:
//
//	target     the session or space that a ref is for
//	status     a server's answer about a ref: confirmed, its rights, why it is dead
//	confirmed  a server has accepted the secret
//	dead       no server will accept it any more
//	owner      the ref of a session that was created here
//	rotation   a new ref takes the place of an old one: rotating, then rotated
//	gone       of a row: its ref was dropped; the row stays for a while, for processes that cache it
//	reading    one query for the rows written since a mark
//	route      the refs through which a stream is opened (package machine)
//
// Cache.mu is a leaf: it is held for a few statements, never across a Source. The cache holds all
// refs of an outbox, without a bound of its own.
package refs
