"""A page that follows a batch while it runs, fed by server-sent events."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from fastapi import FastAPI, HTTPException
from fastapi.responses import HTMLResponse, StreamingResponse

from oxpull_async import BatchNotFound, Oxpull, Worker
from oxpull_async.integrations.fastapi import event_stream

ox = Oxpull()  # reads OXPULL_DATABASE_URL when it is opened


@ox.task
async def resize(picture: int) -> int:
    return picture


@ox.task
async def publish(album: str) -> str:
    return f"{album} is published"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with ox.running(worker=Worker(ox, concurrency=4)):  # the reconciler runs as well
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/albums/{name}", status_code=202)
async def album(name: str, pictures: int) -> dict[str, Any]:
    async with ox.batches.create(name, on_success=publish, on_success_args=[name]) as batch:
        await batch.add_many(resize, ((number,) for number in range(pictures)))
    return {"batch": batch.id, "page": f"/batches/{batch.id}"}


@app.get("/batches/{batch_id}/events")
async def events(batch_id: UUID) -> StreamingResponse:
    try:
        batch = await ox.batches.get(batch_id)
    except BatchNotFound as error:
        raise HTTPException(404, "no such batch") from error
    return event_stream(batch.watch(), end="complete")


@app.get("/batches/{batch_id}", response_class=HTMLResponse)
async def page(batch_id: UUID) -> str:
    return PAGE.replace("BATCH", str(batch_id))


PAGE = """<!doctype html>
<title>Batch</title>
<progress id="bar" max="1" value="0"></progress>
<p id="words">…</p>
<script>
  const source = new EventSource("/batches/BATCH/events");
  source.onmessage = (event) => {
    const progress = JSON.parse(event.data);
    document.getElementById("bar").max = Math.max(progress.total, 1);
    document.getElementById("bar").value = progress.finished;
    document.getElementById("words").textContent =
      `${progress.succeeded} of ${progress.total} done, ${progress.failed} failed`;
  };
  source.addEventListener("complete", () => {
    source.close();
    document.title = "Complete";
  });
</script>
"""
