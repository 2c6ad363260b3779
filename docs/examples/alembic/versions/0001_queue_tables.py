"""The queue's tables."""

from alembic import op

from oxpull_async.drivers import schema_statements

revision = "0001"
down_revision = None


def upgrade() -> None:
    url = op.get_context().dialect.name + "://"  # the dialect alone counts; "mariadb://" for MariaDB 10.7 or later
    for statement in schema_statements(url):
        if statement.outside_transaction:
            with op.get_context().autocommit_block():
                op.execute(statement.text)
        else:
            op.execute(statement.text)


def downgrade() -> None:
    raise NotImplementedError("the queue's rows would be gone; drop its tables by hand if that is meant")
