"""Opens the servers of a local run to containers, in which `sam local invoke` runs functions.

A container's 127.0.0.1 is its own. It reaches this machine at the address of Docker's bridge, where each server gets a
port that forwards connections to it. On a machine without that address nothing is opened.
"""

import socket
import socketserver
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from threading import Thread
from urllib.parse import urlsplit

BRIDGE = "172.17.0.1"
"""Docker's default. `bip` in its configuration chooses another one."""
_HERE = "127.0.0.1"
_CHUNK_BYTES = 65536


@contextmanager
def open_to_containers(urls: Collection[str], *, bridge: str = BRIDGE) -> Iterator[Mapping[str, str]]:
    """The address for containers of each URL on this machine; none if there is no bridge."""
    found = dict[str, str]()
    with ExitStack() as servers:
        for url in urls:
            if urlsplit(url).hostname == _HERE:
                # No such address: nothing runs containers.
                with suppress(OSError):
                    server = servers.enter_context(_Forwarder((bridge, 0), urlsplit(url).port or 80))
                    found[url] = f"http://{bridge}:{server.server_address[1]}"
        yield found


class _Forwarder(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], port: int) -> None:
        self.port = port
        super().__init__(address, _Connection)
        Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Connection(socketserver.BaseRequestHandler):
    server: _Forwarder

    def handle(self) -> None:
        with suppress(OSError), socket.create_connection((_HERE, self.server.port)) as server:
            answers = Thread(target=_copy, args=(server, self.request), daemon=True)
            answers.start()
            _copy(self.request, server)
            answers.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Until the source sends no more; then neither does the target."""
    with suppress(OSError):
        while chunk := source.recv(_CHUNK_BYTES):
            target.sendall(chunk)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
