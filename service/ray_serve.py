"""The same app under Ray Serve: `serve run deploy/ray/serve.yaml`. Needs the extra `ray`.

Each replica is a whole server but for the listening: an engine with its models, limits, dialects, pages. Nothing of a
client is kept in a replica between requests, so any replica may answer any of them. How many there are, and how many
requests each may have, stands in the configuration; docs/scaling.md says how to choose.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ray import serve
from ray.serve import Application
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.app import create_app
from service.engine.errors import EngineDead
from service.engine.interface import Engine, EngineState
from service.observability.logging import configure_logging
from service.settings import load_settings

_LOOK_SECONDS = 0.05

_LAST_ANSWERS_SECONDS = 10.0
"""How much longer than the server's own grace a replica may take to stop: whoever kills a server waits so long."""


@serve.deployment(
    name="Gossamer",
    # What the engine cannot take up at once waits in Serve's proxies, and what they cannot keep is refused with 503.
    max_ongoing_requests=64,
    max_queued_requests=256,
    autoscaling_config={"min_replicas": 1, "max_replicas": 8, "target_ongoing_requests": 32},
    ray_actor_options={"num_cpus": 2},
    health_check_period_s=5,
)
@serve.ingress()
class Gossamer:
    """A replica. Its settings are the `GOSSAMER_*` variables of `runtime_env`; those that listen are Serve's own."""

    def __init__(self) -> None:
        # Serve listens for all replicas, on every address: without keys it must be told that everyone may use it.
        settings = load_settings(host="0.0.0.0")
        configure_logging(settings.log_level, settings.log_format)
        self._death: EngineDead | None = None
        self._gossamer = create_app(settings, on_engine_dead=self._note_death)

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """The app, for Serve."""
        return StartsWhenReady(self._gossamer, self._gossamer.state.services.engine)

    def check_health(self) -> None:
        """Serve replaces a replica whose engine is dead.

        Raises:
            EngineDead: It is.
        """
        if self._death is not None:
            raise self._death

    def _note_death(self, death: EngineDead) -> None:
        self._death = death


class StartsWhenReady:
    """An app that has not started before its engine takes requests: Serve sends them as soon as it has."""

    def __init__(self, app: ASGIApp, engine: Engine) -> None:
        self._app = app
        self._engine = engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request, or the app's life."""

        async def send_when_ready(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                while not self._engine.is_ready:
                    if self._engine.state is EngineState.DEAD:
                        message = {"type": "lifespan.startup.failed", "message": self._engine.not_ready_reason or ""}
                        break
                    await asyncio.sleep(_LOOK_SECONDS)
            await send(message)

        await self._app(scope, receive, send_when_ready if scope["type"] == "lifespan" else send)


def app(_arguments: Mapping[str, str]) -> Application:
    """The application, built where Serve's configuration is applied, with the variables of `runtime_env`.

    Serve kills a replica that takes longer to stop than the server itself may, by `GOSSAMER_STOP_GRACE_SECONDS`.

    Raises:
        SettingsError: The variables cannot be used.
    """
    grace = load_settings(host="0.0.0.0").stop_grace_seconds
    replica = Gossamer.options(  # type: ignore[attr-defined]  # the decorator's, which ships no types
        graceful_shutdown_timeout_s=grace + _LAST_ANSWERS_SECONDS
    )
    return replica.bind()
