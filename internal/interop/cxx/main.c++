// The C++ implementation as a peer: "server", "client" or "ez" and an address as KJ writes it: HOST:PORT or
// unix:PATH. What is said on standard input and output is told in the Go package's doc.go.

#include <capnp/rpc-twoparty.h>
#include <kj/async-io.h>
#include <kj/debug.h>
#include <stdio.h>

#include "client.h"
#include "house.h"

namespace {

void serve(kj::AsyncIoContext& io, kj::StringPtr address) {
  House house;
  capnp::TwoPartyServer server(kj::heap<PeerImpl>(house));
  auto listener = io.provider->getNetwork().parseAddress(address).wait(io.waitScope)->listen();
  if (address.startsWith("unix:")) {
    printf("listening %s\n", address.cStr());
  } else {
    printf("listening 127.0.0.1:%u\n", listener->getPort());
  }
  fflush(stdout);
  auto listening = server.listen(*listener);
  auto in = io.lowLevelProvider->wrapInputFd(0);
  in->readAllText().wait(io.waitScope);
}

}  // namespace

int main(int argc, char* argv[]) {
  if (argc != 3) {
    fprintf(stderr, "usage: %s server|client|ez ADDRESS\n", argv[0]);
    return 2;
  }
  kj::StringPtr what = argv[1], address = argv[2];
  KJ_IF_MAYBE (e, kj::runCatchingExceptions([&]() {
    if (what == "ez") {
      followEz(address);
      return;
    }
    auto io = kj::setupAsyncIo();
    if (what == "server") {
      serve(io, address);
    } else {
      follow(io, address);
    }
  })) {
    fprintf(stderr, "%s\n", kj::str(*e).cStr());
    return 1;
  }
  return 0;
}
