"""OpenAI's Agents SDK works, whose default is the Responses API: an agent with a tool, whole and streamed."""

import asyncio

import agents
import openai
import pytest

from tests import bills
from tests.servers.customer import Customer


@pytest.mark.parametrize("model", ["sim/test/reasoning-tools", "simanthropic/claude/reasoning-tools"])
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_an_agent_calls_its_tool_and_answers(account: Customer, model: str, *, streams: bool) -> None:
    asked = []

    @agents.function_tool
    def weather(query: str) -> str:
        """The weather of a place."""
        asked.append(query)
        return "sunny"

    async def run() -> agents.RunResult | agents.RunResultStreaming:
        async with openai.AsyncOpenAI(api_key=account.key, base_url=account.gateway.base_url, max_retries=0) as client:
            agent = agents.Agent(
                name="Forecaster",
                instructions="Ask the tool.",
                tools=[weather],
                model=agents.OpenAIResponsesModel(model=model, openai_client=client),
            )
            config = agents.RunConfig(tracing_disabled=True)
            if not streams:
                return await agents.Runner.run(agent, "How is Paris?", run_config=config)
            streamed = agents.Runner.run_streamed(agent, "How is Paris?", run_config=config)
            async for _event in streamed.stream_events():
                pass
            return streamed

    done = asyncio.run(run())
    assert asked == ["How is Paris?"]
    assert done.final_output == "The tool says: sunny"
    records = bills.records(account)
    assert [record.ending for record in records] == ["finished", "finished"]
    usage = done.context_wrapper.usage
    assert (usage.input_tokens, usage.output_tokens) == (
        sum(record.prompt_tokens for record in records),
        sum(record.completion_tokens for record in records),
    )
