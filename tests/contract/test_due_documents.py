"""A due document becomes an order in one conditional transaction, on DynamoDB Local and in the simulation."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from onecharge.orders.schema import new_order_item
from onecharge.runtime.dynamodb import from_item, to_item
from onecharge.runtime.paging import ReadPage, paged
from onecharge.runtime.parallel import one_after_another
from place_due_orders.documents import FIELDS, DocumentChanged, DueDocument, DueDocumentStore, Item
from place_due_orders.due import DueRun
from tests.contract.conftest import Endpoint
from tests.support.harness import create_table
from tests.support.silent import SILENT

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
TODAY = "2026-11-21"
RUNS_AT_ONCE = 8
DOCUMENTS = 40


@dataclass(frozen=True)
class Tables:
    """The DueDocuments and Orders tables of one DynamoDB, with their adapter."""

    client: Any
    documents: DueDocumentStore

    @classmethod
    def on(cls, client: Any) -> "Tables":
        names = f"due-{uuid4()}", f"orders-{uuid4()}"
        create_table(client, names[0], "DueDocumentsTable")
        create_table(client, names[1], "OrdersTable")
        return cls(client, DueDocumentStore(client, *names))

    def put_document(self, document_id: str = "inv-1", **changes: Any) -> dict[str, Any]:
        values = {
            "due_date": TODAY,
            "document_id": document_id,
            "customer_id": "cus_1",
            "amount_minor": 1099,
            "currency": "eur",
            "payment_method": "pm_card_visa",
            "state": "DUE",
            **changes,
        }
        item = to_item(values)
        self.client.put_item(TableName=self.documents.table, Item=item)
        return item

    def order_of(self, item: dict[str, Any]) -> Any:
        document = DueDocument.from_item(item)
        return new_order_item(
            document.order_id,
            document.customer_id,
            document,
            amount_minor=document.amount_minor,
            correlation_id="c",
            now=NOON,
        )

    def stored(self, document_id: str = "inv-1") -> dict[str, Any]:
        """The document; nothing if there is none."""
        key = to_item({"due_date": TODAY, "document_id": document_id})
        answer = self.client.get_item(TableName=self.documents.table, Key=key, ConsistentRead=True)
        return from_item(answer.get("Item", {}))

    def orders(self) -> list[dict[str, Any]]:
        return [from_item(item) for item in self.client.scan(TableName=self.documents.orders_table)["Items"]]

    def delete(self) -> None:
        key = to_item({"due_date": TODAY, "document_id": "inv-1"})
        self.client.delete_item(TableName=self.documents.table, Key=key)


@pytest.fixture
def tables(dynamodb: Any) -> Tables:
    return Tables.on(dynamodb)


def test_an_order_and_its_document_are_written_in_one_transaction(tables: Tables) -> None:
    """The document becomes ORDERED and has the order's id."""
    read = tables.put_document()
    assert tables.documents.place(read, tables.order_of(read)) is None
    [order] = tables.orders()
    stored = tables.stored()
    assert (stored["state"], stored["order_id"]) == ("ORDERED", order["order_id"])
    # The second time the document has changed since it was read.
    with pytest.raises(DocumentChanged):
        tables.documents.place(read, tables.order_of(read))
    assert len(tables.orders()) == 1


def test_a_changed_document_is_not_ordered(tables: Tables) -> None:
    """Neither the order nor the document is written."""
    changes: list[dict[str, Any]]
    changes = [{"amount_minor": 5}, {"currency": "usd"}, {"payment_method": "pm_2"}, {"state": "WITHDRAWN"}]
    for change in changes:
        read = tables.put_document()
        tables.put_document(**change)
        with pytest.raises(DocumentChanged):
            tables.documents.place(read, tables.order_of(read))
        assert tables.orders() == []
        assert "order_id" not in tables.stored()


def test_a_deleted_document_is_neither_ordered_nor_recreated(tables: Tables) -> None:
    """An update without a condition would create an item."""
    read = tables.put_document()
    tables.delete()
    with pytest.raises(DocumentChanged):
        tables.documents.place(read, tables.order_of(read))
    with pytest.raises(DocumentChanged):
        tables.documents.mark(read, {"state": "INVALID", "reason": "r"})
    assert (tables.orders(), tables.stored()) == ([], {})


def test_an_order_placed_before_shows_its_fingerprint(tables: Tables) -> None:
    """Neither the order nor the document changes."""
    read = tables.put_document()
    assert tables.documents.fingerprint_placed(DueDocument.from_item(read)) is None
    tables.documents.place(read, tables.order_of(read))
    again = tables.put_document(amount_minor=500)
    before = DueDocument.from_item(read).fingerprint
    assert tables.documents.place(again, tables.order_of(again)) == before
    assert tables.documents.fingerprint_placed(DueDocument.from_item(again)) == before
    assert [order["amount_minor"] for order in tables.orders()] == [1099]
    assert tables.stored()["state"] == "DUE"


def test_a_mark_is_conditional_on_the_document_that_was_read(tables: Tables) -> None:
    """Fields that were missing still have to be missing."""
    read = tables.put_document(currency=None, state=None)
    tables.put_document()
    with pytest.raises(DocumentChanged):
        tables.documents.mark(read, {"state": "INVALID", "reason": "r"})
    read = tables.put_document(currency=None, state=None)
    tables.documents.mark(read, {"state": "INVALID", "reason": "r"})
    stored = tables.stored()
    assert (stored["state"], stored["reason"], stored["amount_minor"]) == ("INVALID", "r", 1099)


def test_documents_are_read_page_by_page_by_their_state(tables: Tables) -> None:
    """What is due, whatever is done; and what has no state, or an unknown one. None of another day."""
    done = {1: "ORDERED", 2: "ORDERED", 3: "INVALID", 5: "WITHDRAWN"}
    for number in range(9):
        tables.put_document(f"inv-{number}", state={**done, 7: None, 8: "?"}.get(number, "DUE"))
    tables.put_document("inv-x", due_date="2026-11-22")
    documents = replace(tables.documents, page_size=2)
    assert sorted(all_pages(documents.due, pages=2)) == ["inv-0", "inv-4", "inv-6"]
    assert all_pages(documents.of_no_state, pages=5) == ["inv-7", "inv-8"]
    [read, _], _ = documents.due(TODAY, after=None)
    assert set(read) == {*FIELDS}


def all_pages(read: ReadPage[str, Item, Item], *, pages: int) -> list[str]:
    """The documents of today, two a page; DynamoDB may show that there is no more only by an empty page."""
    found = [items for items, _ in paged([TODAY], read)]
    assert len(found) <= pages + 1
    return [item["document_id"]["S"] for items in found for item in items]


def test_concurrent_runs_place_one_order_for_each_document(endpoint: Endpoint) -> None:
    """None waits for another; the next run orders what they left to each other."""
    tables = Tables.on(endpoint.client())
    for number in range(DOCUMENTS):
        tables.put_document(f"inv-{number:02}")
    counted: list[str] = []

    def run(number: int) -> None:
        DueRun(
            documents=DueDocumentStore(endpoint.client(), tables.documents.table, tables.documents.orders_table),
            clock=lambda: NOON,
            has_time=lambda: True,
            run_id=f"run-{number}",
            logger=SILENT,
            count=counted.append,
            parallel=one_after_another,
        ).place_orders()

    with ThreadPoolExecutor(RUNS_AT_ONCE) as threads:
        list(threads.map(run, range(RUNS_AT_ONCE)))
    run(RUNS_AT_ONCE)
    stored = [tables.stored(f"inv-{number:02}") for number in range(DOCUMENTS)]
    assert Counter(document["state"] for document in stored) == {"ORDERED": DOCUMENTS}
    assert {document["order_id"] for document in stored} == {o["order_id"] for o in tables.orders()}
    assert len(tables.orders()) == DOCUMENTS
    assert Counter(counted)["DueOrderPlaced"] == DOCUMENTS
    assert set(counted) <= {"DueOrderPlaced", "DueDocumentChanged"}
