#include "client.h"

#include <capnp/ez-rpc.h>
#include <capnp/rpc-twoparty.h>
#include <stdio.h>

namespace {

// Lines reads standard input while the event loop runs.
class Lines {
public:
  explicit Lines(kj::AsyncIoContext& io) : io(io), in(io.lowLevelProvider->wrapInputFd(0)) {}

  kj::Maybe<kj::String> next() {
    kj::Vector<char> line;
    for (char c; in->tryRead(&c, 1, 1).wait(io.waitScope) == 1;) {
      if (c == '\n') {
        line.add('\0');
        return kj::String(line.releaseAsArray());
      }
      line.add(c);
    }
    return nullptr;
  }

private:
  kj::AsyncIoContext& io;
  kj::Own<kj::AsyncInputStream> in;
};

// Splits at spaces.
kj::Array<kj::String> split(kj::StringPtr line) {
  kj::Vector<kj::String> words;
  KJ_IF_MAYBE (at, line.findFirst(' ')) {
    words.add(kj::str(line.slice(0, *at)));
    for (auto& word : split(line.slice(*at + 1))) words.add(kj::mv(word));
  } else {
    words.add(kj::str(line));
  }
  return words.releaseAsArray();
}

void print(kj::StringPtr line) {
  printf("%s\n", line.cStr());
  fflush(stdout);
}

// Says how a scenario went.
void report(kj::StringPtr name, kj::Maybe<kj::Exception> failed) {
  KJ_IF_MAYBE (e, failed) {
    auto why = kj::str(e->getFile(), ':', e->getLine(), ": ", e->getDescription());
    for (char& c : why) {
      if (c == '\n') c = ' ';
    }
    print(kj::str("FAIL ", name, ' ', why));
  } else {
    print(kj::str("ok ", name));
  }
}

}  // namespace

void Trial::eventually(kj::StringPtr what, kj::Function<bool()> holds) {
  auto& timer = io.provider->getTimer();
  for (auto deadline = timer.now() + 20 * kj::SECONDS; !holds();) {
    KJ_REQUIRE(timer.now() < deadline, "it never came to be", what);
    timer.afterDelay(1 * kj::MILLISECONDS).wait(io.waitScope);
  }
}

kj::String Trial::refused(kj::StringPtr what, kj::Exception::Type type, kj::Promise<void> promise) {
  using Refusal = kj::Maybe<kj::Exception>;
  auto got = await(promise.then([]() -> Refusal { return nullptr; },
                                [](kj::Exception&& e) -> Refusal { return kj::mv(e); }));
  KJ_IF_MAYBE (e, got) {
    KJ_REQUIRE(e->getType() == type, "another type of exception", what, *e);
    return kj::str(e->getDescription());
  }
  KJ_FAIL_REQUIRE("no exception", what);
}

void follow(kj::AsyncIoContext& io, kj::StringPtr address) {
  Lines lines(io);
  auto to = io.provider->getNetwork().parseAddress(address).wait(io.waitScope);
  auto line = lines.next();
  for (;;) {
    KJ_IF_MAYBE (l, line) {
      auto words = split(*l);
      auto& name = words[0];
      House house;
      auto stream = to->connect().wait(io.waitScope);
      capnp::TwoPartyClient client(*stream);
      report(name, kj::runCatchingExceptions([&]() {
        Trial t{io, house, words.slice(1, words.size()), [&]() { return client.bootstrap().castAs<Peer>(); }, print};
        runScenario(name, t);
        house.held = nullptr;
        t.eventually("our objects are gone", [&]() { return house.alive == 0; });
      }));
      line = lines.next();  // the connection stands, and is served, until then
    } else {
      return;
    }
  }
}

void followEz(kj::StringPtr address) {
  House house;
  capnp::EzRpcClient client(address);
  kj::Maybe<kj::String> name;
  report("ez", kj::runCatchingExceptions([&]() {
    auto req = client.getMain<Peer>().makeRequest();
    req.setName("ez");
    auto node = req.send().getNode();
    auto answer = node.nameRequest().send().wait(client.getWaitScope());
    KJ_REQUIRE(answer.getName() == "ez");
  }));
  client.getLowLevelIoProvider().wrapInputFd(0)->readAllText().wait(client.getWaitScope());
}
