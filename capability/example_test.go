package capability_test

// What holders and servers do with refs, as programs that run.

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

func ExampleParseRef() {
	ref, err := capability.ParseRef("moorings://one.example,two.example:8600/agents/" +
		"ses_01J00000000000000000000001.s01J00000000000000000000009#AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ref) // the secret stays out
	fmt.Println(ref.Target())
	fmt.Println(ref.URLs())
	// Output:
	// moorings://one.example,two.example:8600/agents/ses_01J00000000000000000000001.s01J00000000000000000000009#…
	// ses_01J00000000000000000000001
	// [wss://one.example:7600/agents/capnp wss://two.example:8600/agents/capnp]
}

func ExampleMint() {
	owner := &capability.Grant{ID: parentID, Target: session1, Owner: true, Rights: capability.SessionRights, Actor: "owner"}

	secret := capability.NewSecret() // stays with the client, which sends id and hash
	reader, err := capability.Mint(owner, capability.MintRequest{
		ID: capability.DeriveID(session1, secret), Hash: secret.Hash(),
		Rights: capability.Read | capability.Share, Expires: 90_000, Actor: "owner/reviewer",
	}, 1, 30_000)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := capability.Check(reader, 1, 60_000, capability.Append, "put"); errors.Is(err, fault.MissingRight) {
		fmt.Println(err)
	}
	if err := capability.Check(reader, 2, 60_000, capability.Read, ""); errors.Is(err, fault.StaleEpoch) {
		fmt.Println(err)
	}
	// Output:
	// missing_right: this needs append, the ref carries read,share: ask for a ref that has it
	// stale_epoch: the ref was shared under epoch 1, the session is at epoch 2: ask its owner for a new one
}

// A ref goes from one program to another in a file that nobody else can read.
func ExampleWriteRefFile() {
	dir, err := os.MkdirTemp("", "mooring-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	at, err := capability.ParseAddress("moorings://mooring.example")
	if err != nil {
		log.Fatal(err)
	}
	name := filepath.Join(dir, "helper.ref")
	if err := capability.WriteRefFile(name, at.New(session1)); err != nil {
		log.Fatal(err)
	}
	ref, err := capability.ReadRefFile(name)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ref.Address(), ref.Target() == session1)
	// Output: moorings://mooring.example true
}
