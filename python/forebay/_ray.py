"""Ray: connecting to it, and actors that are replaced when they die."""

import os
import re
import socket
import threading
from collections.abc import Sequence
from typing import Any

from forebay._core import ConfigError, ForebayError

ANSWER_S = 10.0
"""The seconds within which an address must answer."""
SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The frame of HTTP/2 with which each side begins. Its byte 3 is its kind. Source: RFC 9113, sections 3.4 and 6.5."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS
"""What a client of HTTP/2 sends first."""
WAIT_S = 1.0
"""The longest time for which a thread does not see that its actors are closed."""
ATTEMPTS = 10
"""The number of consecutive actors that may die in one call before it fails."""


def started(user: str, address: str | None = None) -> Any:
    """The module `ray`, connected: to `address`, or to a cluster of this process, unless the caller has connected.

    `user` is the parameter or option that needs it, for messages. Raises `ImportError`, and `ConfigError` if no cluster
    answers at the address.
    """
    try:
        import ray
    except ImportError as error:
        raise ImportError(f"{user} needs Ray: pip install forebay[ray]") from error
    if not ray.is_initialized():
        if address is not None:
            _check_answers(user, address)
        try:
            ray.init(address=address, log_to_driver=False)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{user}: Ray did not connect ({error}); is a cluster running (`ray start --head`), and does this "
                "machine have its token, if it has one (RAY_AUTH_MODE=token, RAY_AUTH_TOKEN_PATH)?"
            ) from error
    return ray


def _check_answers(user: str, address: str) -> None:
    """Raises `ConfigError` if an address with a port has no server of HTTP/2, as Ray's are: Ray tries for minutes."""
    found = re.fullmatch(r"(?:ray://)?\[?([^\[\]/]+?)\]?:(\d{1,5})", address)
    if found is None or os.environ.get("RAY_USE_TLS", "0") != "0":
        return
    try:
        with socket.create_connection((found[1], int(found[2])), ANSWER_S) as connection:
            connection.sendall(PREFACE)
            frame = connection.recv(len(SETTINGS), socket.MSG_WAITALL)
    except OSError as error:
        raise ConfigError(
            f"{user}: no Ray cluster answers there ({error}); start one with `ray start --head`, and give HOST:PORT as "
            "it prints it, or auto on a machine of the cluster"
        ) from error
    if frame[3:4] != SETTINGS[3:4]:
        raise ConfigError(f"{user}: what answers there is not Ray; give HOST:PORT as `ray start --head` prints it")


class Actors:
    """An actor in each of some places. Threads call them; an actor that dies is replaced."""

    def __init__(self, ray: Any, kind: type, given: Sequence[Any], places: Sequence[dict[str, Any]], what: str) -> None:
        """Objects of `kind`, made with `given`. `places` are options of Ray for each; `what` they work for."""
        self._ray = ray
        self._actor = ray.remote(max_concurrency=1)(kind)
        self._given = given
        self._places = places
        self._what = what
        self._lock = threading.Lock()
        self._is_closed = False
        self._actors: list[Any] = [None] * len(places)

    def __len__(self) -> int:
        return len(self._places)

    def call(self, place: int, method: str, *given: Any) -> Any:
        """Calls a method of the actor of a place; of a new one if it dies. Raises what the method raises."""
        attempt = 0
        while True:
            attempt += 1
            actor = self._living(place)
            try:
                return self._result(getattr(actor, method).remote(*given))
            except self._ray.exceptions.RayTaskError as error:
                raise error.cause from error
            except self._ray.exceptions.RayError as error:  # the actor, its machine, or its result is lost
                self._bury(place, actor)
                if getattr(error, "actor_init_failed", False):
                    raise ForebayError(
                        f"a process of Ray for {self._what} did not begin; does every machine have forebay? {error}"
                    ) from error
                if attempt == ATTEMPTS:
                    raise ForebayError(
                        f"{ATTEMPTS} processes of Ray died one after another in the same part of {self._what}: {error}"
                    ) from error

    def close(self) -> None:
        """Ends the actors and prevents new ones, since threads that are calling an actor would replace it."""
        with self._lock:
            self._is_closed = True
            for actor in self._actors:
                if actor is not None:
                    self._ray.kill(actor)
            self._actors = [None] * len(self._places)

    def _result(self, reference: Any) -> Any:
        """The result of a call; raises `ForebayError` if the actors are closed before it comes."""
        while not self._ray.wait([reference], timeout=WAIT_S)[0]:
            if self._is_closed:
                raise self._ended()
        return self._ray.get(reference)

    def _ended(self) -> ForebayError:
        return ForebayError(f"{self._what} was ended while a batch was being processed")

    def _living(self, place: int) -> Any:
        with self._lock:
            if self._is_closed:
                raise self._ended()
            if self._actors[place] is None:
                self._actors[place] = self._actor.options(**self._places[place]).remote(*self._given)
            return self._actors[place]

    def _bury(self, place: int, actor: Any) -> None:
        with self._lock:
            if self._actors[place] is actor:
                self._actors[place] = None
