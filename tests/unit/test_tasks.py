"""Tasks: what may be declared, what a call must fit, and what a copy takes over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oxpull_async import (
    Call,
    InvalidArguments,
    InvalidTask,
    NotOpen,
    Oxpull,
    Task,
    TaskContext,
    TaskRouter,
    Unique,
)

MODULE = __name__


@pytest.fixture
def ox() -> Oxpull:
    """One that is never opened."""
    return Oxpull("sqlite:///nowhere.db")


# Declaring


def test_a_task_is_known_by_module_and_name(ox: Oxpull):
    @ox.task
    async def send(order_id: int) -> str:
        """Sends."""
        return str(order_id)

    assert isinstance(send, Task)
    name = "test_a_task_is_known_by_module_and_name.<locals>.send"
    assert send.path == f"{MODULE}.{name}"
    assert ox.tasks == {send.path: send}
    assert (send.__name__, send.__doc__, send.__wrapped__) == ("send", "Sends.", send.function)  # type: ignore[attr-defined]
    assert send.path in repr(send)


async def test_calling_a_task_runs_its_function(ox: Oxpull):
    @ox.task
    def double(number: int) -> int:
        return number * 2

    @ox.task(unique=True)
    async def triple(number: int) -> int:
        return number * 3

    assert double(2) == 4
    assert await triple(number=2) == 6


def test_a_method_and_a_nested_function_may_be_tasks(ox: Oxpull):
    class Mail:
        @staticmethod
        def send() -> None: ...

    assert ox.task(Mail.send).path.endswith(".Mail.send")


@pytest.mark.parametrize("function", [lambda: None, 5, "send", None, object()], ids=lambda value: type(value).__name__)
def test_what_has_no_name_is_no_task(ox: Oxpull, function: Any):
    with pytest.raises((InvalidTask, TypeError)):
        ox.task()(function)


def test_a_path_belongs_to_one_function(ox: Oxpull):
    def make() -> Any:
        def send() -> None: ...

        return send

    first = make()
    ox.task(first)
    ox.task(first)  # the same one again

    with pytest.raises(InvalidTask, match="send"):
        ox.task(make())


def test_the_context_needs_a_parameter_to_be_taken_by(ox: Oxpull):
    with pytest.raises(InvalidTask, match="takes_context=True but no parameter"):

        @ox.task(takes_context=True)  # type: ignore[arg-type]
        async def nothing() -> None: ...


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"priority": 101}, "priority"), ({"priority": 1.5}, "priority"), ({"queue_name": ""}, "queue_name"),
        ({"queue_name": "x" * 129}, "queue_name"), ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"), ({"timeout": 0}, "timeout"), ({"timeout": "5"}, "timeout"),
        ({"backoff": -1}, "backoff"), ({"backoff": "slow"}, "backoff"), ({"unique": "yes"}, "unique"),
        ({"unique": 1}, "unique"), ({"wait": -1}, "wait"), ({"wait": "long"}, "wait"),
        ({"no_such": 1, "nor_this": 2}, "'no_such'. there is no task option 'nor_this'"),
            ({"name": "x"}, "name"),
    ],
    ids=str,
)  # fmt: skip
def test_an_option_that_cannot_be_used_is_named(ox: Oxpull, options: dict[str, Any], complaint: str):
    with pytest.raises(InvalidTask, match=complaint):
        ox.task(**options)
    with pytest.raises(InvalidTask, match=complaint):
        ox.reference("proof.tasks.x", **options)


def test_options_are_kept_in_one_form(ox: Oxpull):
    task = ox.reference(
        "proof.tasks.x", priority=5.0, timeout=timedelta(minutes=1), backoff=timedelta(seconds=2), unique=True,
        max_attempts=None, queue_name="mail", wait=timedelta(seconds=3),
    )  # fmt: skip

    options = task.options
    assert (options.priority, type(options.priority)) == (5, int)
    assert (options.timeout, options.backoff, options.wait) == (60.0, 2.0, 3.0)
    assert (options.max_attempts, options.queue_name, options.unique) == (None, "mail", Unique())
    assert ox.reference("proof.tasks.x", unique=False).options.unique is None


@pytest.mark.parametrize("path", ["", "x" * 256, "a\0b", 5, None])
def test_a_reference_needs_a_path_that_can_be_stored(ox: Oxpull, path: Any):
    with pytest.raises(InvalidTask, match="task path"):
        ox.reference(path)


def test_a_reference_is_not_run_here(ox: Oxpull):
    task = ox.reference("proof.tasks.x")

    assert task.path not in ox.tasks
    with pytest.raises(InvalidTask, match="another code base"):
        task()


# Copies


def test_a_copy_takes_over_what_is_not_given(ox: Oxpull):
    @ox.task(queue_name="mail", priority=3, max_attempts=7, unique=True)
    def send(number: int) -> None: ...

    due = datetime(2030, 1, 1, tzinfo=UTC)
    copy = send.using(priority=0, run_after=due, wait=5)

    assert copy is not send
    assert (copy.path, copy.function) == (send.path, send.function)
    assert (copy.options.priority, copy.options.run_after, copy.options.wait) == (0, due, 5.0)
    assert (copy.options.queue_name, copy.options.max_attempts, copy.options.unique) == ("mail", 7, Unique())
    assert (send.options.priority, send.options.run_after) == (3, None)
    assert ox.tasks == {send.path: send}


@pytest.mark.parametrize(
    "options", [{"priority": -101}, {"queue_name": ""}, {"max_attempts": 0}, {"wait": -1}], ids=str
)
def test_a_copy_is_checked_as_a_declaration_is(ox: Oxpull, options: dict[str, Any]):
    with pytest.raises(InvalidTask):
        ox.reference("proof.tasks.x").using(**options)


# Calls


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}), ((1, 2, 3, 4), {}), ((1,), {"a": 2}), ((1,), {"d": 2}), ((), {"b": 1}), ((1,), {}), ((1, 2, 3), {}),
        ((1, 2), {}),
    ],
)  # fmt: skip
def test_a_call_must_fit_the_function(ox: Oxpull, args: tuple[Any, ...], kwargs: dict[str, Any]):
    @ox.task
    def add(a: int, b: int = 0, *, c: int) -> None: ...

    with pytest.raises(InvalidArguments, match=r"add\(a: .*\).*: ") as caught:
        add.bind_arguments(Call(args, kwargs))

    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("args", "kwargs"), [((1,), {"c": 1}), ((1, 2), {"c": 1}), ((), {"a": 1, "c": 1}), ((), {"c": 1, "b": 2, "a": 3})]
)
def test_a_call_that_fits_is_let_through(ox: Oxpull, args: tuple[Any, ...], kwargs: dict[str, Any]):
    @ox.task
    def add(a: int, b: int = 0, *, c: int) -> None: ...

    add.bind_arguments(Call(args, kwargs))


def test_the_context_is_not_the_callers_to_give(ox: Oxpull):
    @ox.task(takes_context=True)
    async def tell(context: TaskContext, name: str) -> None: ...

    tell.bind_arguments(Call(("Ann",)))
    tell.bind_arguments(Call(kwargs={"name": "Ann"}))
    with pytest.raises(InvalidArguments):
        tell.bind_arguments(Call((object(), "Ann")))
    assert list(tell.signature.parameters) == ["name"]


def test_a_function_of_anything_takes_anything(ox: Oxpull):
    @ox.task
    def anything(*args: Any, **kwargs: Any) -> None: ...

    anything.bind_arguments(Call((1, 2, 3), {"a": 4}))
    ox.reference("proof.tasks.x").bind_arguments(Call((1, 2, 3), {"a": 4}))


# Sameness


@pytest.mark.parametrize("by", [(), "order_id", ("a", 1), [], 5, ["a", None]], ids=repr)
def test_what_counts_is_named_by_a_tuple_or_a_function(by: Any):
    with pytest.raises(InvalidTask, match=r"by"):
        Unique(by=by)


def test_equal_notions_of_sameness_are_equal():
    assert Unique(by=("a", "b")) == Unique(by=["a", "b"])  # type: ignore[arg-type]
    assert Unique() == Unique(by=None)
    assert hash(Unique(by=("a",))) == hash(Unique(by=("a",)))


# Routers


def test_a_router_joins_with_what_it_has_and_will_have(ox: Oxpull):
    router = TaskRouter()

    @router.task
    def first() -> None: ...

    ox.include(router)
    ox.include(router)

    @router.task(unique=True)
    def second() -> None: ...

    assert set(ox.tasks) == {first.path, second.path}
    assert set(router.tasks) == {first.path, second.path}


def test_a_router_belongs_to_one(ox: Oxpull):
    router = TaskRouter()
    ox.include(router)

    with pytest.raises(InvalidTask, match="another Oxpull"):
        Oxpull().include(router)


def test_a_router_does_not_take_a_path_that_is_taken(ox: Oxpull):
    def make() -> Any:
        def send() -> None: ...

        return send

    router = TaskRouter()
    router.task(make())
    taken = ox.task(make())

    with pytest.raises(InvalidTask, match="taken"):
        ox.include(router)
    assert ox.tasks == {taken.path: taken}


async def test_a_task_that_belongs_to_nobody_says_so():
    router = TaskRouter()

    @router.task
    def send() -> None: ...

    for call in (send.enqueue(), send.enqueue_unique(), send.enqueue_many([]), send.enqueue_unique_many([])):
        with pytest.raises(NotOpen, match=r"ox\.include\(router\)"):
            await call


def test_a_key_of_a_parameter_that_the_function_has_not_is_refused_at_its_declaration(ox: Oxpull):
    async def send(order_id: int, **options: str) -> None: ...

    with pytest.raises(InvalidTask, match=r"send\(order_id: .*names no parameter order, at\.day$"):
        ox.task(unique=Unique(by=("order", "order_id", "at.day")))(send)

    ox.task(unique=Unique(by=("order_id.day", "options")))(send)
