"""The protocol's methods besides tools, as handlers of the SDK's server: each finds the owner and passes on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from roster.backends import requester
from roster.config import Mode
from roster.forwarding.clients import Voice
from roster.forwarding.forwarder import Forwarder
from roster.forwarding.refusals import result_of
from roster.rawanswers import answer_raw

__all__ = ["Handlers", "voice_of"]

Context = ServerRequestContext[Any, Any]


def voice_of(ctx: Context) -> Voice:
    """The request being handled. It was noted down when it came in."""
    voice = requester.get()
    assert isinstance(voice, Voice), ctx.method
    return voice


class Handlers:
    """Resources, prompts, completion and logging of all backends."""

    def __init__(self, forwarder: Forwarder, mode: Mode) -> None:
        self._forwarder = forwarder
        self._lists = mode is Mode.TRANSPARENT

    def register(self, server: Server[Any]) -> None:
        """Have `server` answer these methods. In five mode there are no prompts, and resources can be read by link."""
        handlers: list[tuple[str, type[Any], Any]] = [
            ("resources/list", types.PaginatedRequestParams, self._list_resources),
            ("resources/templates/list", types.PaginatedRequestParams, self._list_templates),
            ("resources/read", types.ReadResourceRequestParams, self._read_resource),
            ("resources/subscribe", types.SubscribeRequestParams, self._subscribe),
            ("resources/unsubscribe", types.UnsubscribeRequestParams, self._unsubscribe),
            ("logging/setLevel", types.SetLevelRequestParams, self._set_level),
            ("subscriptions/listen", types.SubscriptionsListenRequestParams, self._forwarder.listen),
        ]
        if self._lists:
            handlers += [
                ("prompts/list", types.PaginatedRequestParams, self._list_prompts),
                ("prompts/get", types.GetPromptRequestParams, self._get_prompt),
                ("completion/complete", types.CompleteRequestParams, self._complete),
            ]
            handlers += [(f"tasks/{what}", types.RequestParams, self._task) for what in ("get", "result", "cancel")]
            handlers.append(("tasks/list", types.PaginatedRequestParams, self._list_tasks))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for method, params, handler in handlers:
                server.add_request_handler(method, params, handler)
        server.add_notification_handler(
            "notifications/roots/list_changed", types.NotificationParams, self._roots_changed
        )

    async def _list_resources(self, ctx: Context, _: types.PaginatedRequestParams) -> Any:
        rows = await self._forwarder.resources.list_all(voice_of(ctx).client) if self._lists else []
        return answer_raw(ctx.method, {"resources": rows})

    async def _list_templates(self, ctx: Context, _: types.PaginatedRequestParams) -> Any:
        rows = await self._forwarder.resources.list_templates(voice_of(ctx).client) if self._lists else []
        return answer_raw(ctx.method, {"resourceTemplates": rows})

    async def _read_resource(self, ctx: Context, params: types.ReadResourceRequestParams) -> Any:
        return answer_raw(ctx.method, await self._forwarder.resources.read(voice_of(ctx), str(params.uri)))

    async def _subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        voice = voice_of(ctx)
        await self._forwarder.subscribe(voice.client, voice, str(params.uri))
        return types.EmptyResult()

    async def _unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        await self._forwarder.subscriptions.unsubscribe(voice_of(ctx).client, str(params.uri))
        return types.EmptyResult()

    async def _list_prompts(self, ctx: Context, _: types.PaginatedRequestParams) -> Any:
        return answer_raw(ctx.method, {"prompts": await self._forwarder.prompts.list_all(voice_of(ctx).client)})

    async def _get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> Any:
        voice = voice_of(ctx)
        server, result = await self._forwarder.prompts.get(voice, params.name)
        self._forwarder.remember(server, result, voice.client)
        return answer_raw(ctx.method, result)

    async def _complete(self, ctx: Context, _: types.CompleteRequestParams) -> Any:
        voice = voice_of(ctx)
        ref = (ctx.params or {}).get("ref")
        server, own = await self._owner_of(voice, ref if isinstance(ref, Mapping) else {})
        backend = self._forwarder.backends[server]
        if "completions" not in (backend.offers or ()):
            # Roster announces what some server has; one that has not has nothing to suggest.
            return answer_raw(ctx.method, {"completion": {"values": [], "total": 0, "hasMore": False}})
        answer = await backend.request(ctx.method, voice.params(ref=own))
        return answer_raw(ctx.method, result_of(server, answer))

    async def _owner_of(self, voice: Voice, ref: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The server that a completion reference names, and the reference as that server knows it."""
        if ref.get("type") == "ref/prompt":
            server, name = await self._forwarder.prompts.find(str(ref.get("name")), voice.client)
            return server, {**ref, "name": name}
        uri = str(ref.get("uri"))
        place = await self._forwarder.resources.template_owner(uri, voice.client)
        if place is None:
            raise MCPError(types.INVALID_PARAMS, f"No server has the resource or template {uri}", {"uri": uri})
        return place.server, {**ref, "uri": place.uri}

    async def _task(self, ctx: Context, _: types.RequestParams) -> Any:
        voice = voice_of(ctx)
        server, result = await self._forwarder.tasks.ask(voice)
        self._forwarder.remember(server, result, voice.client)
        return answer_raw(ctx.method, result)

    async def _list_tasks(self, ctx: Context, _: types.PaginatedRequestParams) -> Any:
        return answer_raw(ctx.method, {"tasks": await self._forwarder.tasks.list_all(voice_of(ctx).client)})

    async def _set_level(self, ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        await self._forwarder.set_level(voice_of(ctx).client, params.level)
        return types.EmptyResult()

    async def _roots_changed(self, _: Context, __: types.NotificationParams) -> None:
        await self._forwarder.roots_changed()
